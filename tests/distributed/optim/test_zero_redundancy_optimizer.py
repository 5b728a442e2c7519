"""ZeroRedundancyOptimizer equals its local class in one process."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.distributed.optim import ZeroRedundancyOptimizer
from disttrain.errors import ConfigError, StateDictError
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=8, depth=2 * 3 * 6)

CLASSES = {
    "SGD": (optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "Adam": (optim.Adam, {"lr": 0.01}),
    "AdamW": (optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "Adagrad": (optim.Adagrad, {"lr": 0.1}),
}


def model(seed: int = 0) -> nn.Module:
    dt.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Linear(5, 2)).double()


def gradients(m: nn.Module, step: int) -> None:
    x = core.wrap(np.random.default_rng(step).standard_normal((4, 6)))
    (m(x) ** 2).sum().backward()


def values(m: nn.Module) -> list[np.ndarray]:
    return [p.detach().numpy().copy() for p in m.parameters()]


def train(m: nn.Module, o: optim.Optimizer, steps: range) -> list[np.ndarray]:
    for step in steps:
        o.zero_grad()
        gradients(m, step)
        o.step()
    return values(m)


def assert_same(a: list[np.ndarray], b: list[np.ndarray]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def in_group(body):
    def run():
        dist.init_process_group()
        out = body()
        dist.destroy_process_group()
        return out

    return run


@pytest.mark.simulated
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CLASSES)
def test_equals_one_process(name: str, size: int, views: bool) -> None:
    kind, settings = CLASSES[name]

    @in_group
    def body() -> tuple:
        m = model()
        o = ZeroRedundancyOptimizer(
            m.parameters(), kind, parameters_as_bucket_view=views, **settings
        )
        out = train(m, o, range(5))
        return out, len([p for g in o.optim.param_groups for p in g["params"]]), len(o.optim.state)

    alone = train((m := model()), kind(m.parameters(), **settings), range(5))
    results = dist.simulate(body, size).results
    assert sum(n for _, n, _ in results) == len(alone)
    for ours, owned, with_state in results:
        assert_same(ours, alone)
        assert with_state == owned


def test_on_real_processes_with_more_ranks_than_parameters() -> None:
    def body() -> list[np.ndarray]:
        dist.init_process_group()
        dt.manual_seed(1)
        m = nn.Linear(6, 2).double()
        o = ZeroRedundancyOptimizer(m.parameters(), optim.Adam, lr=0.1)
        out = train(m, o, range(3))
        dist.destroy_process_group()
        return out

    dt.manual_seed(1)
    m = nn.Linear(6, 2).double()
    alone = train(m, optim.Adam(m.parameters(), lr=0.1), range(3))
    for ours in launch(body, 4):
        assert_same(ours, alone)


def groups_of(m: nn.Module) -> list[dict]:
    ps = list(m.parameters())
    return [{"params": ps[:3], "lr": 0.05}, {"params": ps[3:], "weight_decay": 0.2}]


@pytest.mark.simulated
def test_groups_schedules_and_a_group_added_later() -> None:
    def run(make) -> tuple:
        m, extra = model(), model(1)
        o = make(groups_of(m))
        schedule = optim.lr_scheduler.StepLR(o, 1, gamma=0.5)
        train(m, o, range(2))
        schedule.step()
        o.add_param_group({"params": list(extra.parameters()), "lr": 0.3})
        gradients(extra, 7)
        grads = [p.grad for p in extra.parameters()]
        for step in range(2, 4):
            o.zero_grad()
            gradients(m, step)
            for p, g in zip(extra.parameters(), grads, strict=True):
                p.grad = g.clone()
            o.step()
        settings = [{k: v for k, v in g.items() if k != "params"} for g in o.param_groups]
        return values(m) + values(extra), settings

    @in_group
    def body() -> tuple:
        views = dist.get_world_size() == 2
        return run(lambda groups: ZeroRedundancyOptimizer(
            groups, optim.AdamW, parameters_as_bucket_view=views, lr=0.1))  # fmt: skip

    alone, settings = run(lambda groups: optim.AdamW(groups, lr=0.1))
    for size in (2, 3):
        for ours, theirs in dist.simulate(body, size).results:
            assert_same(ours, alone)
            assert theirs == settings


@pytest.mark.simulated
@pytest.mark.parametrize("sizes", [(1, 3), (3, 2), (2, 1), (2, 2)])
def test_state_goes_from_n_ranks_to_m(sizes: tuple[int, int]) -> None:
    """Saved on one world size, loaded on another, or into the local class."""

    @in_group
    def save() -> tuple:
        m = model()
        o = ZeroRedundancyOptimizer(groups_of(m), optim.Adam, lr=0.1)
        train(m, o, range(3))
        o.consolidate_state_dict(to=dist.get_world_size() - 1)
        last = dist.get_rank() == dist.get_world_size() - 1
        return values(m), o.state_dict() if last else None

    kept, state = dist.simulate(save, sizes[0]).results[-1]
    assert sorted(state["state"]) == list(state["state"]) == list(range(6))

    def resume(make) -> list[np.ndarray]:
        m = model()
        for p, v in zip(m.parameters(), kept, strict=True):
            p.data.copy_(core.wrap(v))
        o = make(groups_of(m))
        before = copy.deepcopy(state)
        o.load_state_dict(state)
        assert repr(before) == repr(state)
        return train(m, o, range(3, 6))

    @in_group
    def load() -> list[np.ndarray]:
        return resume(lambda groups: ZeroRedundancyOptimizer(groups, optim.Adam, lr=9.0))

    m = model()
    alone = train(m, optim.Adam(groups_of(m), lr=0.1), range(6))
    assert_same(resume(lambda groups: optim.Adam(groups, lr=9.0)), alone)
    for ours in dist.simulate(load, sizes[1]).results:
        assert_same(ours, alone)


@pytest.mark.simulated
def test_state_that_was_not_consolidated_is_refused() -> None:
    @in_group
    def body() -> str:
        o = ZeroRedundancyOptimizer(model().parameters(), optim.SGD, lr=0.1)
        o.consolidate_state_dict(to=0)
        try:
            o.state_dict()
        except StateDictError as error:
            return str(error)
        return "given"

    first, second = dist.simulate(body, 2).results
    assert first == "given" and "consolidate_state_dict(to=1)" in second


@pytest.mark.simulated
@pytest.mark.parametrize("views", [False, True])
def test_parameters_frozen_and_thawed_on_the_way(views: bool) -> None:
    def run(make) -> list[np.ndarray]:
        m = model()
        m[0].requires_grad_(False)
        o = make(m.parameters())
        train(m, o, range(2))
        m[0].requires_grad_(True)
        m[2].requires_grad_(False)
        return train(m, o, range(2, 4))

    @in_group
    def body() -> list[np.ndarray]:
        return run(lambda ps: ZeroRedundancyOptimizer(
            ps, optim.Adam, lr=0.1, parameters_as_bucket_view=views))  # fmt: skip

    alone = run(lambda ps: optim.Adam(ps, lr=0.1))
    for ours in dist.simulate(body, 2).results:
        assert_same(ours, alone)


@pytest.mark.simulated
def test_closures_arguments_and_hooks() -> None:
    class Counting(optim.SGD):
        def step(self, closure=None, tally=None):
            if tally is not None:
                tally.append(len(self.param_groups[0]["params"]))
            self.param_groups[0]["seen"] = True
            return super().step(closure)

    @in_group
    def body() -> tuple:
        m, tally, calls = model(), [], []
        o = ZeroRedundancyOptimizer(m.parameters(), Counting, lr=0.1)
        o.register_step_pre_hook(lambda *_: calls.append("before"))
        o.register_step_post_hook(lambda *_: calls.append("after"))

        def closure():
            o.zero_grad()
            gradients(m, 0)
            return 3.5

        return o.step(closure, tally=tally), tally, calls, o.param_groups[0]["seen"], values(m)

    m = model()
    gradients(m, 0)
    optim.SGD(m.parameters(), lr=0.1).step()
    results = dist.simulate(body, 2).results
    assert sum(r[1][0] for r in results) == 6
    for loss, _, calls, seen, ours in results:
        assert (loss, calls, seen) == (3.5, ["before", "after"], True)
        assert_same(ours, values(m))


@pytest.mark.simulated
def test_with_ddp_equals_one_process_on_the_whole_batch() -> None:
    x = np.random.default_rng(3).standard_normal((8, 6))

    def steps(m: nn.Module, o: optim.Optimizer, part: slice) -> list[np.ndarray]:
        for _ in range(4):
            o.zero_grad()
            (m(core.wrap(x[part])) ** 2).mean().backward()
            o.step()
        return values(m)

    @in_group
    def body() -> list[np.ndarray]:
        m = dist.DistributedDataParallel(model())
        o = ZeroRedundancyOptimizer(m.parameters(), optim.AdamW, lr=0.1)
        half = 4 * dist.get_rank()
        return steps(m, o, slice(half, half + 4))

    m = model()
    alone = steps(m, optim.AdamW(m.parameters(), lr=0.1), slice(None))
    for ours in dist.simulate(body, 2).results:
        for a, b in zip(ours, alone, strict=True):
            SUMS.equal(a, b)


@pytest.mark.simulated
def test_bucket_views_share_one_piece_of_memory() -> None:
    @in_group
    def body() -> bool:
        m = model()
        o = ZeroRedundancyOptimizer(
            m.parameters(), optim.SGD, parameters_as_bucket_view=True, lr=0.1
        )
        return all(np.shares_memory(p.array, o.sharing.flat) for p in m.parameters())

    assert dist.simulate(body, 2).results == [True, True]


@pytest.mark.parametrize("params, error, text", [
    ([], ValueError, "empty parameter list"),
    (dt.ones(1), TypeError, "iterable of Tensors"),
    (1.2, TypeError, "iterable of Tensors"),
    ([dt.ones(1), 42], TypeError, "Tensors or dicts"),
    ([{"lr": 1.0}], ConfigError, "'params' key"),
    ([dt.ones(1), dt.ones(1).double()], ConfigError, "same dense type"),
])  # fmt: skip
def test_wrong_parameters_are_refused(params, error: type, text: str) -> None:
    dist.init_process_group()
    try:
        with pytest.raises(error, match=text):
            ZeroRedundancyOptimizer(params, optim.SGD, lr=0.1)
    finally:
        dist.destroy_process_group()


@pytest.mark.simulated
def test_steps_without_effect_are_said() -> None:
    @in_group
    def body() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            o = ZeroRedundancyOptimizer(
                model().parameters(), optim.SGD, overlap_with_ddp=True,
                parameters_as_bucket_view=True, lr=0.1,
            )  # fmt: skip
            assert o.step() is None
        return [str(w.message) for w in caught]

    (said,) = dist.simulate(body, 1).results
    assert "will be ignored" in said[0] and "should not be included" in said[1]


# --- uneven inputs -------------------------------------------------------------------------------


def uneven(make, size: int, schedule: bool = False) -> list:
    """Ranks have 2, 3, 4 ... batches; the parameters afterwards."""

    @in_group
    def body() -> list[np.ndarray]:
        rank = dist.get_rank()
        m = dist.DistributedDataParallel(model())
        o, joinables = make(m)
        steps = optim.lr_scheduler.ExponentialLR(o, 0.5) if schedule else None
        with dist.Join([m, *joinables]):
            for step in range(2 + rank):
                o.zero_grad()
                x = core.wrap(np.random.default_rng([rank, step]).standard_normal((4, 6)))
                (m(x) ** 2).mean().backward()
                o.step()
                if steps is not None:
                    steps.step()
        return values(m)

    return dist.simulate(body, size).results


@pytest.mark.simulated
@pytest.mark.parametrize("size, schedule", [(2, False), (3, True)])
def test_uneven_inputs_under_join_equal_the_local_class(size: int, schedule: bool) -> None:
    def zero(m):
        o = ZeroRedundancyOptimizer(m.parameters(), optim.Adam, lr=0.1)
        return o, [o]

    def local(m):
        return optim.Adam(m.parameters(), lr=0.1), []

    wanted = uneven(local, size, schedule)
    for ours in uneven(zero, size, schedule):
        assert_same(ours, wanted[0])


@pytest.mark.simulated
def test_join_of_the_optimizer_alone() -> None:
    @in_group
    def body() -> list[np.ndarray]:
        m = model()
        o = ZeroRedundancyOptimizer(m.parameters(), optim.SGD, lr=0.1, momentum=0.9)
        with dist.Join([o]):
            for step in range(1 + 2 * dist.get_rank()):
                o.zero_grad()
                gradients(m, step)
                o.step()
        return values(m)

    m = model()
    alone = train(m, optim.SGD(m.parameters(), lr=0.1, momentum=0.9), range(3))
    for ours in dist.simulate(body, 2).results:
        assert_same(ours, alone)
