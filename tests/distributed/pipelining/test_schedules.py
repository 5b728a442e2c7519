"""Every schedule equals one process that accumulates over the same micro-batches: bit for bit."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.comm.transports.sim import die
from disttrain.core.random import manual_seed
from disttrain.distributed import pipelining as pp
from disttrain.distributed.pipelining.placement import looped, vee
from disttrain.errors import (
    AutogradError,
    CollectiveMismatch,
    ConfigError,
    LaunchError,
    PeerFailed,
)
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=12, depth=2 * 8)

BATCH = 12
WIDTH = 6
SCHEDULES = {
    "GPipe": 1, "1F1B": 1, "Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2,
    "ZBVZeroBubble": 2, "DualPipeV": 2,
}  # fmt: skip


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((BATCH, WIDTH)), rng.standard_normal((BATCH, WIDTH))


def layers(n: int) -> list[nn.Module]:
    manual_seed(3)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(n)]


def grads(m: nn.Module) -> list:
    return [None if p.grad is None else p.grad.numpy().copy() for p in m.parameters()]


@functools.cache
def one_process(n: int, micro: int, make=layers) -> tuple:
    """The gradients per layer, the losses, and the output."""
    parts = make(n)
    x, y = data()
    losses, outs = [], []
    for px, py in zip(np.array_split(x, micro), np.array_split(y, micro), strict=True):
        out = core.wrap(px)
        for part in parts:
            out = part(*out) if isinstance(out, tuple) else part(out)
        loss = F.mse_loss(out, core.wrap(py))
        loss.backward(core.wrap(np.asarray(1.0 / micro)))
        losses.append(loss.item())
        outs.append(out.detach().numpy())
    return [grads(p) for p in parts], losses, np.concatenate(outs)


def build(name: str, n: int, micro: int, parts: list, **options) -> tuple:
    """This rank's schedule, and its stages."""
    kind = pp.get_schedule_class(name)
    rank, size = dist.get_rank(), dist.get_world_size()
    home = (vee if name in ("ZBVZeroBubble", "DualPipeV") else looped)(size, n)
    stages = [pp.PipelineStage(parts[s], s, n, "cpu") for s in range(n) if home[s] == rank]
    single = issubclass(kind, pp.PipelineScheduleSingle)
    return kind(stages[0] if single else stages, micro, F.mse_loss, **options), stages


def train(name: str, n: int, micro: int, make=layers, **options) -> tuple:
    dist.init_process_group()
    schedule, stages = build(name, n, micro, make(n), **options)
    x, y = data()
    losses: list = []
    given = (core.wrap(x),) if dist.get_rank() == 0 else ()
    out = schedule.step(*given, target=core.wrap(y), losses=losses)
    found = {s.stage_index: grads(s.submod) for s in stages}
    dist.destroy_process_group()
    return found, [loss.item() for loss in losses], None if out is None else out.detach().numpy()


def assert_equal(results: list, n: int, micro: int, make=layers) -> None:
    expected, losses, out = one_process(n, micro, make)
    found = {s: g for r in results for s, g in r[0].items()}
    assert sorted(found) == list(range(n))
    for stage, theirs in enumerate(expected):
        for a, b in zip(found[stage], theirs, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_array_equal(a, b)
    (last,) = [r for r in results if r[2] is not None]
    assert last[1] == losses
    np.testing.assert_array_equal(last[2], out)


@pytest.mark.simulated
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("micro", [1, 4, 5])
def test_equals_one_process(name: str, ranks: int, micro: int) -> None:
    n = ranks * SCHEDULES[name]
    micro = max(micro, n) if name == "DualPipeV" else micro
    assert_equal(dist.simulate(train, ranks, args=(name, n, micro)).results, n, micro)


@pytest.mark.parametrize("name", ["1F1B", "ZBVZeroBubble"])
def test_equals_one_process_on_real_ranks(name: str) -> None:
    n = 2 * SCHEDULES[name]
    assert_equal(launch(lambda: train(name, n, 4), 2), n, 4)


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(4))
def test_any_interleaving(seed: int) -> None:
    results = dist.simulate(train, 3, seed=seed, args=("InterleavedZeroBubble", 6, 5)).results
    assert_equal(results, 6, 5)


# --- other forms of models -----------------------------------------------------------------------


class Begin(nn.Module):
    """Several results: two that are used, a number, and one that nobody uses; a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH).double(), nn.Linear(WIDTH, WIDTH).double()

    def forward(self, x):
        return self.a(x), x, 2.0, self.b(x), {"ids": core.wrap(np.arange(len(x.numpy())))}


class Middle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH).double()

    def forward(self, h, skip, factor, unused, extra):
        assert extra["ids"].dtype == core.dtypes.int64 and factor == 2.0
        return [self.a(h).tanh() * factor, skip, h]


class End(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH).double()

    def forward(self, h, skip, first):
        return self.a(h) + skip + first


def skipping(n: int) -> list[nn.Module]:
    manual_seed(4)
    return [Begin(), Middle(), Middle0(), End()][:n] if n == 4 else [Begin(), Middle(), End()]


class Middle0(nn.Module):
    """Passes everything on; has no parameters."""

    def forward(self, h, skip, first):
        return h, skip, first


def frozen_first(n: int) -> list[nn.Module]:
    parts = layers(n)
    for p in parts[0].parameters():
        p.requires_grad_(False)
    return parts


def frozen_middle(n: int) -> list[nn.Module]:
    parts = layers(n)
    for p in parts[1].parameters():
        p.requires_grad_(False)
    return parts


def one_tuple(out):
    return tuple(out) if isinstance(out, list) else out


@pytest.mark.simulated
@pytest.mark.parametrize("name", ["GPipe", "1F1B", "InterleavedZeroBubble"])
@pytest.mark.parametrize("make", [skipping, frozen_first, frozen_middle])
@pytest.mark.parametrize("ranks", [3, 4])
def test_forms_of_models(name: str, make, ranks: int) -> None:
    results = dist.simulate(train, ranks, args=(name, ranks, 3, make)).results
    assert_equal(results, ranks, 3, make_like_tuple(make))


@functools.cache
def make_like_tuple(make):
    """``make`` whose parts give tuples where they give lists (as one process wants them)."""

    def made(n: int) -> list[nn.Module]:
        parts = make(n)
        for p in parts:
            p.register_forward_hook(lambda m, i, out: one_tuple(out))
        return parts

    return made


class Packs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH).double()

    def forward(self, x):
        h = self.a(x)
        kinds = {"turned": h.t(), "none": h[:0], "flags": h > 0, "sum": h.sum(), "gap": None,
                 "half": h.to(core.dtypes.bfloat16), "steps": h[:, ::2], "name": "x"}  # fmt: skip
        return kinds, [h.to(core.dtypes.complex64), 5]


class Unpacks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH).double()

    def forward(self, kinds, more):
        assert kinds["none"].shape == (0, WIDTH) and kinds["flags"].dtype == core.dtypes.bool
        assert kinds["gap"] is None and kinds["name"] == "x" and more[1] == 5
        h = self.a(kinds["turned"].t()) + kinds["sum"] + kinds["half"].double()
        return h + more[0].real.double() + kinds["steps"].repeat(1, 2)


def packing(n: int) -> list[nn.Module]:
    manual_seed(6)
    return [Packs(), Unpacks()]


@pytest.mark.simulated
@pytest.mark.parametrize("name", ["GPipe", "InterleavedZeroBubble"])
def test_whatever_a_tree_may_hold_goes_from_stage_to_stage(name: str) -> None:
    results = dist.simulate(train, 2, args=(name, 2, 3, packing)).results
    assert_equal(results, 2, 3, packing)


@pytest.mark.simulated
def test_keyword_arguments_and_specs() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(WIDTH, WIDTH).double()

        def forward(self, x, factor=None, columns=None):
            h = self.a(x)
            h = h if factor is None else h * factor
            return h if columns is None else h + columns.T

    x, y = data()
    factor, columns = np.linspace(1, 2, BATCH)[:, None], np.ones((WIDTH, BATCH))

    def body():
        dist.init_process_group()
        manual_seed(1)
        parts = [Scaled(), Scaled()]
        rank = dist.get_rank()
        stage = pp.PipelineStage(parts[rank], rank, 2, "cpu")
        specs = {"kwargs_chunk_spec": {"columns": pp.TensorChunkSpec(1)}} if rank else {}
        schedule = pp.ScheduleGPipe(stage, 3, F.mse_loss, **specs)
        if rank == 0:
            schedule.step(core.wrap(x), factor=core.wrap(factor))
        else:
            schedule.step(target=core.wrap(y), columns=core.wrap(columns))
        dist.destroy_process_group()
        return grads(parts[rank])

    results = dist.simulate(body, 2).results
    manual_seed(1)
    a, b = Scaled(), Scaled()
    out = b(a(core.wrap(x), factor=core.wrap(factor)), columns=core.wrap(columns))
    F.mse_loss(out, core.wrap(y)).backward()
    for ours, theirs in zip(results, (a, b), strict=True):
        for g, p in zip(ours, theirs.parameters(), strict=True):
            SUMS.equal(g, p.grad.numpy())


@pytest.mark.simulated
def test_sizes_may_change_from_step_to_step() -> None:
    def body():
        dist.init_process_group()
        rank = dist.get_rank()
        stage = pp.PipelineStage(layers(2)[rank], rank, 2, "cpu")
        schedule = pp.Schedule1F1B(stage, 2, F.mse_loss, scale_grads=False)
        x, y = data()
        shapes = []
        for n in (12, 12, 5, 12):
            out = schedule.step(*([core.wrap(x[:n])] * (rank == 0)), target=core.wrap(y[:n]))
            shapes.append(None if out is None else tuple(out.shape))
        dist.destroy_process_group()
        return shapes

    assert dist.simulate(body, 2).results[1] == [(12, 6), (12, 6), (5, 6), (12, 6)]


@pytest.mark.simulated
def test_eval_and_scale() -> None:
    def body():
        dist.init_process_group()
        rank = dist.get_rank()
        parts = layers(4)
        home = vee(2, 4)
        stages = [pp.PipelineStage(parts[s], s, 4, "cpu") for s in range(4) if home[s] == rank]
        schedule = pp.ScheduleZBVZeroBubble(stages, 3, F.mse_loss, scale_grads=False)
        x, y = data()
        losses: list = []
        given = [core.wrap(x)] * (rank == 0)
        with pytest.raises(AutogradError, match="Please call eval"), core.no_grad():
            schedule.step(*given, target=core.wrap(y))
        with core.no_grad():
            out = schedule.eval(*given, target=core.wrap(y), losses=losses)
        assert all(p.grad is None for s in stages for p in s.submod.parameters())
        schedule.step(*given, target=core.wrap(y), return_outputs=False)
        sums = {s.stage_index: grads(s.submod) for s in stages}
        dist.destroy_process_group()
        return [loss.item() for loss in losses], None if out is None else out.numpy(), sums

    results = dist.simulate(body, 2).results
    expected, losses, out = one_process(4, 3)
    assert results[0][0] == losses and results[1][0] == [] and results[1][1] is None
    np.testing.assert_array_equal(results[0][1], out)
    for stage, theirs in enumerate(expected):
        ours = {**results[0][2], **results[1][2]}[stage]
        for a, b in zip(ours, theirs, strict=True):
            SUMS.equal(a, 3 * b)


@pytest.mark.simulated
def test_a_users_plan() -> None:
    text = "0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n"

    def body(tmp: str):
        dist.init_process_group()
        rank = dist.get_rank()
        part = layers(2)[rank]
        stage = pp.PipelineStage(part, rank, 2, "cpu")
        schedule = pp.PipelineScheduleMulti([stage], 2, F.mse_loss, plan=text)
        x, y = data()
        schedule.step(*([core.wrap(x)] * (rank == 0)), target=core.wrap(y))
        schedule.pipeline_order = {0: ["0F0", "0F1", None, "0B0", "0B1"],
                                   1: [None, "1F0", "1B0", "1F1", "1B1"]}  # fmt: skip
        part.zero_grad()
        schedule.step(*([core.wrap(x)] * (rank == 0)), target=core.wrap(y))
        assert "rank 1 |" in schedule.show()
        with pytest.raises(ConfigError, match=r"stages .* were given on rank"):
            schedule.pipeline_order = {1: ["0F0", "0F1", "0B0", "0B1"],
                                       0: ["1F0", "1F1", "1B0", "1B1"]}  # fmt: skip
        dist.destroy_process_group()
        return grads(part)

    for ours, theirs in zip(dist.simulate(body, 2, args=("",)).results, one_process(2, 2)[0],
                            strict=True):  # fmt: skip
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.simulated
def test_plans_from_files(tmp_path) -> None:
    def body():
        dist.init_process_group()
        stage = pp.PipelineStage(layers(1)[0], 0, 1, "cpu")
        schedule = pp.ScheduleGPipe(stage, 2, F.mse_loss)
        schedule._dump_csv(str(tmp_path / "plan.csv"))
        other = pp.PipelineScheduleMulti([stage], 2, F.mse_loss)
        with pytest.raises(ConfigError, match="it has no plan"):
            other.step(core.wrap(data()[0]))
        other._load_csv(str(tmp_path / "plan.csv"))
        assert other.pipeline_order == schedule.pipeline_order
        dist.destroy_process_group()

    dist.simulate(body, 1)


# --- errors ---------------------------------------------------------------------------------------


class Fails(nn.Module):
    def __init__(self, when: str) -> None:
        super().__init__()
        self.a, self.when, self.calls = nn.Linear(WIDTH, WIDTH).double(), when, 0

    def forward(self, x):
        self.calls += 1
        out = self.a(x)
        if self.when == "forward" and self.calls == 2:
            raise FloatingPointError("the second micro-batch is bad")
        if self.when == "backward" and self.calls == 2:
            out.register_hook(self.hook)
        return out

    def hook(self, g):
        raise FloatingPointError("the second micro-batch is bad")


@pytest.mark.simulated
@pytest.mark.parametrize("when", ["forward", "backward"])
@pytest.mark.parametrize("name", ["GPipe", "1F1B", "InterleavedZeroBubble"])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_an_error_reaches_every_rank_and_the_group_lives_on(when, name, where) -> None:
    def body():
        dist.init_process_group()
        rank = dist.get_rank()
        part = Fails(when) if rank == where else layers(3)[rank]
        stage = pp.PipelineStage(part, rank, 3, "cpu")
        kind = pp.get_schedule_class(name)
        single = issubclass(kind, pp.PipelineScheduleSingle)
        schedule = kind(stage if single else [stage], 4, F.mse_loss)
        x, y = data()
        given = [core.wrap(x)] * (rank == 0)
        with pytest.raises((FloatingPointError, PeerFailed)) as caught:
            schedule.step(*given, target=core.wrap(y))
        out = schedule.step(*given, target=core.wrap(y))
        dist.destroy_process_group()
        notes = "".join(getattr(caught.value, "__notes__", []))
        return type(caught.value).__name__, str(caught.value) + notes, out is not None

    results = dist.simulate(body, 3).results
    for rank, (kind, text, ended) in enumerate(results):
        assert kind == ("FloatingPointError" if rank == where else "PeerFailed")
        assert "the second micro-batch is bad" in text
        assert f"of micro-batch 1 on stage {where} (rank {where})" in text
        assert ended == (rank == 2)
        if rank != where:
            assert "raise FloatingPointError" in text  # the line
            assert text.startswith(f"pipeline: rank {where} failed: FloatingPointError")


@pytest.mark.simulated
def test_a_killed_rank_ends_the_others() -> None:
    def body():
        dist.init_process_group()
        rank = dist.get_rank()
        stage = pp.PipelineStage(layers(2)[rank], rank, 2, "cpu")
        if rank == 1:
            stage.submod.register_forward_hook(lambda m, i, o: die())
        schedule = pp.Schedule1F1B(stage, 4, F.mse_loss)
        x, y = data()
        schedule.step(*([core.wrap(x)] * (rank == 0)), target=core.wrap(y))

    with pytest.raises(LaunchError, match="killed"):
        dist.simulate(body, 2)


@pytest.mark.simulated
def test_ranks_may_call_from_different_lines_of_a_strict_program() -> None:
    def body():
        dist.init_process_group()
        schedule, _ = build("1F1B", 2, 4, layers(2))
        x, y = (core.wrap(a) for a in data())
        if dist.get_rank() == 0:
            out = schedule.step(x)
        else:
            out = schedule.step(target=y)
        dist.destroy_process_group()
        return None if out is None else out.detach().numpy()

    first, last = dist.simulate(body, 2, strict=True).results
    first_layer, last_layer = layers(2)
    assert first is None
    np.testing.assert_allclose(last, last_layer(first_layer(core.wrap(data()[0]))).detach().numpy())


@pytest.mark.simulated
def test_ranks_with_different_schedules() -> None:
    def body():
        dist.init_process_group()
        rank = dist.get_rank()
        stage = pp.PipelineStage(layers(2)[rank], rank, 2, "cpu")
        schedule = pp.ScheduleGPipe(stage, 2 + rank, F.mse_loss)
        with pytest.raises(CollectiveMismatch, match="ranks follow different plans"):
            schedule.step(*([core.wrap(data()[0])] * (rank == 0)), target=core.wrap(data()[1]))
        dist.destroy_process_group()

    dist.simulate(body, 2)


@pytest.mark.simulated
def test_misuse() -> None:
    def body():
        dist.init_process_group()
        part = layers(1)[0]
        with pytest.raises(ConfigError, match="0 <= stage_index < num_stages"):
            pp.PipelineStage(part, 1, 1, "cpu")
        stage = pp.PipelineStage(part, 0, 2, "cpu")
        with pytest.raises(ConfigError, match="one stage per rank"):
            pp.ScheduleGPipe(stage, 2)
        with pytest.raises(ConfigError, match="at least one of each"):
            pp.PipelineScheduleMulti([stage], 0)
        with pytest.raises(ConfigError, match="needs stages"):
            pp.ScheduleInterleaved1F1B([stage], 2)
        with pytest.raises(ConfigError, match="Unknown schedule name 'X'"):
            pp.get_schedule_class("X")
        whole = pp.ScheduleGPipe(pp.PipelineStage(part, 0, 1, "cpu"), 20, F.mse_loss)
        with pytest.raises(ConfigError, match="cut along dimension 0 into 20 micro-batches"):
            whole.step(core.wrap(data()[0]))
        with pytest.raises(TypeError, match="losses must be a list"):
            whole.step(core.wrap(data()[0]), losses=())
        dist.destroy_process_group()

    dist.simulate(body, 1)


@pytest.mark.simulated
def test_memory_is_given_back() -> None:
    """1F1B keeps few micro-batches: after a step nothing is kept."""

    def body():
        dist.init_process_group()
        rank = dist.get_rank()
        schedule, (stage,) = build("1F1B", 2, 6, layers(2))
        held = []
        stage.submod.register_forward_hook(lambda m, i, o: held.append(len(stage._flights)))
        x, y = data()
        schedule.step(*([core.wrap(x)] * (rank == 0)), target=core.wrap(y))
        dist.destroy_process_group()
        return max(held) + 1, len(stage._flights)

    assert dist.simulate(body, 2).results == [(2, 0), (1, 0)]
