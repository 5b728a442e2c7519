"""Tensor parallelism beside FSDP, HSDP and DDP, and all of them inside pipeline stages: each equals
one process."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import disttrain as dt
import disttrain.distributed.checkpoint as checkpoints
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn
from disttrain.autograd import checkpoint
from disttrain.core.random import manual_seed
from disttrain.distributed import pipelining as pp
from disttrain.distributed._composable.replicate import replicate
from disttrain.distributed.checkpoint import state_dict as states
from disttrain.distributed.fsdp import FullyShardedDataParallel, fully_shard
from disttrain.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    _StridedShard,
    init_device_mesh,
)
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from disttrain.errors import ConfigError
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=16, depth=2 * 6 * 3)

DIM, VOCAB, BATCH, SEQ = 8, 12, 4, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.w1, self.w2 = nn.Linear(DIM, 12), nn.Linear(12, DIM)

    def forward(self, x):
        return x + self.w2(F.gelu(self.w1(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def made() -> Net:
    manual_seed(5)
    return Net().double()


def batch(seed: int = 0) -> tuple[dt.Tensor, dt.Tensor]:
    rng = np.random.default_rng(seed)
    return tuple(dt.tensor(rng.integers(0, VOCAB, (BATCH, SEQ))) for _ in range(2))


def cut(m: nn.Module, mesh) -> nn.Module:
    plan = {
        "tokens": RowwiseParallel(input_layouts=Replicate()),
        "layers.*.w1": ColwiseParallel(),
        "layers.*.w2": RowwiseParallel(),
        "head": ColwiseParallel(use_local_output=False),
    }
    return parallelize_module(m, mesh, plan)


def cut_sequences(m: nn.Module, mesh) -> nn.Module:
    plan = {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "layers.*.norm": SequenceParallel(use_local_output=True),
        "layers.*.w1": ColwiseParallel(input_layouts=Shard(1)),
        "layers.*.w2": RowwiseParallel(output_layouts=Shard(1)),
        "head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }
    return parallelize_module(m, mesh, plan)


def loss_of(m: nn.Module, ids: dt.Tensor, target: dt.Tensor) -> dt.Tensor:
    out = m(ids)
    with loss_parallel():
        return F.cross_entropy(out.flatten(0, 1), target.flatten())


def number(t: dt.Tensor) -> float:
    return (t.full_tensor() if isinstance(t, DTensor) else t).item()


def train(m: nn.Module, rank: int, size: int, steps: int = 3) -> list[float]:
    """``steps`` of AdamW on this replica's share of the batch; the mean loss of its share."""
    optimizer = dt.optim.AdamW(m.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        ids, target = (t[rank::size] for t in batch(step))
        loss = loss_of(m, ids, target)
        with loss_parallel():
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(number(loss))
    return losses


def whole(t: dt.Tensor) -> np.ndarray:
    return (t.full_tensor() if isinstance(t, DTensor) else t).detach().numpy().copy()


def assert_equals_one_process(results: list) -> None:
    reference = made()
    losses = train(reference, 0, 1)
    SUMS.equal(np.mean([r[1] for r in results], 0), losses)
    expected = {n: p.detach().numpy() for n, p in reference.named_parameters()}
    for params, _ in results:
        assert list(params) == list(expected)
        for name, p in params.items():
            SUMS.equal(p, expected[name], err_msg=name)


def run(shape: tuple, names: tuple, body) -> list:
    def rank():
        dist.init_process_group()
        found = body(init_device_mesh("cpu", shape, mesh_dim_names=names))
        dist.destroy_process_group()
        return found

    return dist.simulate(rank, int(np.prod(shape))).results


@pytest.mark.parametrize("shape", [(2, 2), (2, 4)])
@pytest.mark.parametrize("sequences", [False, True])
def test_fsdp_beside_tensor_parallelism(shape: tuple, sequences: bool) -> None:
    def body(mesh):
        m = (cut_sequences if sequences else cut)(made(), mesh["tp"])
        for layer in m.layers:
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(m, mesh=mesh["dp"])
        w1, w2 = m.layers[0].w1.weight, m.layers[0].w2.weight
        assert isinstance(w1, DTensor) and tuple(w1.shape) == (12, DIM)
        assert w1.device_mesh == mesh and w1.placements[1] == Shard(0)
        assert w1.placements[0] == _StridedShard(0, split_factor=shape[1])
        assert w2.placements == (Shard(0), Shard(1))
        np.testing.assert_array_equal(whole(w1), made().layers[0].w1.weight.detach().numpy())
        losses = train(m, mesh["dp"].get_local_rank(), shape[0])
        return {n: whole(p) for n, p in m.named_parameters()}, losses

    assert_equals_one_process(run(shape, ("dp", "tp"), body))


@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("views", [False, True])
def test_ddp_beside_tensor_parallelism(sequences: bool, views: bool) -> None:
    def body(mesh):
        m = (cut_sequences if sequences else cut)(made(), mesh["tp"])
        at = mesh["dp"].get_local_rank()
        if at:  # rank 0's values win
            with dt.no_grad():
                for p in m.parameters():
                    p.zero_()
        wrapped = dist.DistributedDataParallel(
            m, process_group=mesh["dp"].get_group(), bucket_cap_mb=0.0005,
            gradient_as_bucket_view=views,
        )  # fmt: skip
        losses = train(wrapped, at, 2)
        assert isinstance(m.head.weight, DTensor)
        return {n: whole(p) for n, p in m.named_parameters()}, losses

    assert_equals_one_process(run((2, 2), ("dp", "tp"), body))


def test_replicated_shards_beside_tensor_parallelism() -> None:
    """Three dimensions: replicas x shards x tensor parallelism."""

    def body(mesh):
        m = cut(made(), mesh["tp"])
        for layer in m.layers:
            fully_shard(layer, mesh=mesh["replicas", "shards"])
        fully_shard(m, mesh=mesh["replicas", "shards"])
        w1 = m.layers[0].w1.weight
        assert w1.placements == (Replicate(), _StridedShard(0, split_factor=2), Shard(0))
        place = mesh.get_coordinate()
        losses = train(m, 2 * place[0] + place[1], 4)
        return {n: whole(p) for n, p in m.named_parameters()}, losses

    assert_equals_one_process(run((2, 2, 2), ("replicas", "shards", "tp"), body))


def test_activation_checkpointing_inside() -> None:
    def body(mesh):
        m = cut(made(), mesh["tp"])
        for layer in m.layers:
            layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(m, mesh=mesh["dp"])
        losses = train(m, mesh["dp"].get_local_rank(), 2)
        return {n: whole(p) for n, p in m.named_parameters()}, losses

    assert_equals_one_process(run((2, 2), ("dp", "tp"), body))


def test_a_checkpoint_of_both_dimensions_loads_anywhere(tmp_path) -> None:
    def save(mesh):
        m = cut(made(), mesh["tp"])
        fully_shard(m, mesh=mesh["dp"])
        train(m, mesh["dp"].get_local_rank(), 2, steps=1)
        checkpoints.save({"model": m.state_dict()}, checkpoint_id=str(tmp_path / "c"))
        return {n: whole(p) for n, p in m.named_parameters()}

    def load(mesh):
        m = cut(made(), mesh["tp"])
        state = {"model": m.state_dict()}
        checkpoints.load(state, checkpoint_id=str(tmp_path / "c"))
        return {n: whole(p) for n, p in m.named_parameters()}

    saved = run((2, 2), ("dp", "tp"), save)[0]
    for shape in ((1, 1), (1, 3)):
        for loaded in run(shape, ("dp", "tp"), load):
            for name, p in loaded.items():
                np.testing.assert_array_equal(p, saved[name])


def test_whole_states_go_into_another_model() -> None:
    """Parameters and optimizer state, whole, of two dimensions; the copy goes on as the first."""
    options = states.StateDictOptions(full_state_dict=True)

    def made_on(mesh) -> tuple:
        m = cut(made(), mesh["tp"])
        fully_shard(m, mesh=mesh["dp"])
        return m, dt.optim.AdamW(m.parameters(), lr=1e-2)

    def step(m, optimizer, at: int) -> float:
        ids, target = batch()
        with loss_parallel():
            loss = loss_of(m, ids[at::2], target[at::2])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return number(loss)

    def body(mesh):
        at = mesh["dp"].get_local_rank()
        m, optimizer = made_on(mesh)
        step(m, optimizer, at)
        params = states.get_model_state_dict(m, options=options)
        state = states.get_optimizer_state_dict(m, optimizer, options=options)
        name = "layers.0.w1.weight"
        assert type(params[name]) is dt.Tensor and tuple(params[name].shape) == (12, DIM)
        assert tuple(state["state"][name]["exp_avg"].shape) == (12, DIM)
        other, its = made_on(mesh)
        states.set_model_state_dict(other, params, options=options)
        states.set_optimizer_state_dict(other, its, state, options=options)
        for _ in range(2):
            assert step(m, optimizer, at) == step(other, its, at)

    run((2, 2), ("dp", "tp"), body)


def test_a_model_larger_than_a_rank_is_made_in_place() -> None:
    """On the meta device, cut, sharded, then given numbers: those of the whole model."""

    def numbers(m: nn.Module) -> nn.Module:
        manual_seed(8)
        for module in m.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        return m

    def body(mesh):
        with dt.device("meta"):
            m = Net().double()
        cut(m, mesh["tp"])
        for layer in m.layers:
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(m, mesh=mesh["dp"])
        numbers(m.to_empty(device="cpu"))
        return [whole(p) for p in m.parameters()]

    expected = [p.detach().numpy() for p in numbers(made()).parameters()]
    for found in run((2, 2), ("dp", "tp"), body):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_norms_are_those_of_the_whole_model() -> None:
    """Parameters on one axis, on two, and clipping over all of them."""

    def body(mesh):
        m = cut(made(), mesh["tp"])
        fully_shard(m, mesh=mesh["dp"])
        ids, target = batch()
        at = mesh["dp"].get_local_rank()
        loss = loss_of(m, ids[at::2], target[at::2])
        with loss_parallel():
            loss.backward()
        norm = nn.utils.clip_grad_norm_(m.parameters(), 0.01)
        return number(norm), {n: whole(p.grad) for n, p in m.named_parameters()}

    reference = made()
    loss_of(reference, *batch()).backward()
    norm = nn.utils.clip_grad_norm_(reference.parameters(), 0.01).item()
    for found, grads in run((2, 2), ("dp", "tp"), body):
        assert found == pytest.approx(norm, abs=1e-10)
        for name, p in reference.named_parameters():
            SUMS.equal(grads[name], p.grad.numpy())


def test_meshes_that_do_not_belong_together() -> None:
    def body(mesh):
        m = cut(made(), mesh["tp"])
        other = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        with pytest.raises(ConfigError, match="needed are different named axes of one mesh"):
            fully_shard(m.layers[0], mesh=other["a"])
        with pytest.raises(ConfigError, match="needed are different named axes of one mesh"):
            fully_shard(m.layers[1], mesh=mesh["tp"])

    run((2, 2), ("dp", "tp"), body)


# --- pipelines --------------------------------------------------------------------------------


class Begin(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.tokens, self.layer = net.tokens, net.layers[0]

    def forward(self, ids):
        return self.layer(self.tokens(ids))


class End(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.layer, self.head = net.layers[1], net.head

    def forward(self, x):
        return self.head(self.layer(x))


def spread_by_fsdp(part: nn.Module, mesh) -> nn.Module:
    fully_shard(part.layer, mesh=mesh["dp"])
    return fully_shard(part, mesh=mesh["dp"])


def spread_by_ddp(part: nn.Module, mesh) -> nn.Module:
    return dist.DistributedDataParallel(part, process_group=mesh["dp"].get_group())


def spread_as_vectors(part: nn.Module, mesh) -> nn.Module:
    group = mesh["dp"].get_group()
    return FullyShardedDataParallel(part, process_group=group, use_orig_params=True)


def spread_in_place(part: nn.Module, mesh) -> nn.Module:
    return replicate(part, process_group=mesh["dp"].get_group())


def cut_stage(part: nn.Module, mesh) -> nn.Module:
    plan = {"layer.w1": ColwiseParallel(), "layer.w2": RowwiseParallel()}
    return parallelize_module(part, mesh["tp"], plan)


def cut_and_sharded(part: nn.Module, mesh) -> nn.Module:
    return spread_by_fsdp(cut_stage(part, mesh), mesh)


def cut_and_averaged(part: nn.Module, mesh) -> nn.Module:
    return spread_by_ddp(cut_stage(part, mesh), mesh)


def micro_loss(out: dt.Tensor, target: dt.Tensor) -> dt.Tensor:
    return F.cross_entropy(out.flatten(0, 1), target.flatten())


def train_pipeline(spread, mesh, name: str) -> tuple[dict, list[float]]:
    """This rank's stage after three steps of AdamW."""
    group = mesh["pp"].get_group()
    rank, at = group.rank, mesh["dp"].get_local_rank()
    net = made()
    part = spread((Begin, End)[rank](net), mesh)
    stage = pp.PipelineStage(part, rank, 2, "cpu", group=group)
    kind = pp.get_schedule_class(name)
    single = issubclass(kind, pp.PipelineScheduleSingle)
    schedule = kind(stage if single else [stage], 2, micro_loss)
    optimizer = dt.optim.AdamW(part.parameters(), lr=1e-2)
    found = []
    for step in range(3):
        ids, target = (t[at::2] for t in batch(step))
        losses: list = []
        schedule.step(*([ids] * (rank == 0)), target=target, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(np.mean([number(x) for x in losses])) if losses else 0.0)
    return values(part), found


def values(part: nn.Module) -> dict:
    if isinstance(part, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(part):
            return {n: p.detach().numpy().copy() for n, p in part.named_parameters()}
    return {n.removeprefix("module."): whole(p) for n, p in part.named_parameters()}


NAMES = {
    0: {"tokens": "tokens", "layer": "layers.0"},
    1: {"layer": "layers.1", "head": "head"},
}


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "InterleavedZeroBubble"])
@pytest.mark.parametrize(
    ("spread", "tp"),
    [
        (spread_by_ddp, 1),
        (spread_by_fsdp, 1),
        (spread_in_place, 1),
        (spread_as_vectors, 1),
        (cut_and_averaged, 2),
        (cut_and_sharded, 2),
    ],
)
def test_pipelines_of_spread_stages(name: str, spread, tp: int) -> None:
    """Two and three dimensions: stages whose gradients are averaged, or whose parameters are
    sharded, or cut and sharded."""

    def body(mesh):
        return mesh["pp"].get_local_rank(), *train_pipeline(spread, mesh, name)

    results = run((2, 2, tp), ("pp", "dp", "tp"), body)
    reference = made()
    losses = train(reference, 0, 1)
    last = [r[2] for r in results if r[0] == 1]
    SUMS.equal(np.mean(last, 0), losses)
    expected = {n: p.detach().numpy() for n, p in reference.named_parameters()}
    for stage, params, _ in results:
        assert len(params) == 7
        for n, p in params.items():
            head, _, rest = n.partition(".")
            full = f"{NAMES[stage][head]}.{rest}"
            SUMS.equal(p, expected[full], err_msg=full)


def test_a_checkpoint_of_three_dimensions_loads_in_one_process(tmp_path) -> None:
    """Every stage saves what it has under the names of the whole model."""

    def save(mesh):
        rank = mesh["pp"].get_local_rank()
        part = cut_and_sharded((Begin, End)[rank](made()), mesh)
        named = {}
        for name, p in part.state_dict().items():
            head, _, rest = name.partition(".")
            named[f"{NAMES[rank][head]}.{rest}"] = p
        checkpoints.save({"model": named}, checkpoint_id=str(tmp_path / "c"))

    def load(mesh):
        m = made()
        with dt.no_grad():
            for p in m.parameters():
                p.zero_()
        checkpoints.load({"model": m.state_dict()}, checkpoint_id=str(tmp_path / "c"))
        return [p.detach().numpy() for p in m.parameters()]

    run((2, 2, 2), ("pp", "dp", "tp"), save)
    (loaded,) = run((1,), ("dp",), load)
    for a, p in zip(loaded, made().parameters(), strict=True):
        np.testing.assert_array_equal(a, p.detach().numpy())
