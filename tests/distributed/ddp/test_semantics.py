"""What DDP means in the corners: which backwards are averaged, which gradients are left alone."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest

from disttrain import autograd, core, nn
from disttrain import distributed as dist
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.core.random import manual_seed
from disttrain.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from disttrain.distributed.ddp.module import BufferCommHookLocation
from disttrain.errors import AutogradError, DTypeError

pytestmark = pytest.mark.simulated

DDP = dist.DistributedDataParallel


def simulated(body, ranks: int = 2, seed: int = 0) -> list:
    def run():
        dist.init_process_group()
        out = body()
        dist.destroy_process_group()
        return out

    return dist.simulate(run, ranks, seed=seed).results


def line(value: float = 1.0) -> nn.Linear:
    """One weight."""
    m = nn.Linear(1, 1, bias=False).double()
    m.weight.data.fill_(value)
    return m


def x(value: float | None = None):
    """1 on rank 0, 2 on rank 1: a mean of 1.5."""
    return core.wrap(np.full((1, 1), 1.0 + dist.get_rank() if value is None else value))


class Pair(nn.Module):
    """Two weights; what is used is said at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = line(), line()

    def forward(self, x, which: str = "ab"):
        out = [getattr(self, name)(x) for name in which]
        return out[0] if len(out) == 1 else tuple(out)


def grads(m) -> list[float | None]:
    return [None if p.grad is None else p.grad.item() for p in m.parameters()]


# --- which backwards are averaged -----------------------------------------------------------------


def test_several_forwards_before_one_backward() -> None:
    def body():
        m = DDP(line())
        (m(x()) + m(x()) * 3).sum().backward()
        return grads(m)

    assert simulated(body) == [[6.0], [6.0]]


def test_several_forwards_with_a_backward_each() -> None:
    def body():
        m = DDP(line())
        first, second = m(x()).sum(), (m(x()) * 3).sum()
        first.backward()
        second.backward()
        return grads(m)

    assert simulated(body) == [[6.0], [6.0]]


def test_gradients_that_are_not_dropped_add_up() -> None:
    def body():
        m = DDP(line())
        for _ in range(3):
            m(x()).sum().backward()
        return grads(m)

    assert simulated(body) == [[4.5], [4.5]]


def test_an_abandoned_forward_does_not_disturb_no_sync() -> None:
    def body():
        m = DDP(line())
        m(x())
        with m.no_sync():
            m(x()).sum().backward()
        before = grads(m)
        m(x()).sum().backward()
        return before, grads(m)

    assert simulated(body) == [([1.0], [3.0]), ([2.0], [3.0])]


def test_backward_of_the_module_itself_stays_local() -> None:
    def body():
        m = DDP(line())
        m(x()).sum().backward()
        m.zero_grad()
        m.module(x()).sum().backward()
        return grads(m)

    assert simulated(body) == [[1.0], [2.0]]


# --- parameters without a gradient ----------------------------------------------------------------


@pytest.mark.parametrize("static", [False, True])
def test_used_by_nobody_keeps_its_gradient(static: bool) -> None:
    def body():
        m = DDP(Pair(), find_unused_parameters=True, static_graph=static)
        m.module.b.weight.grad = core.wrap(np.array([[0.1 + dist.get_rank()]]))
        for _ in range(2):
            m(x(), "a").sum().backward()
        return grads(m)

    results = simulated(body, 3)
    assert [r[1] for r in results] == [0.1, 1.1, 2.1]
    assert [r[0] for r in results] == pytest.approx([4.0] * 3)


def test_used_by_some_gets_the_average_everywhere() -> None:
    def body():
        m = DDP(Pair(), find_unused_parameters=True)
        found = []
        for used in ((0,), (1,), (0, 1), ()):
            m.zero_grad()
            (sum(m(x())) if dist.get_rank() in used else m(x(), "a")).sum().backward()
            found.append(grads(m)[1])
        return found

    assert simulated(body) == [[0.5, 1.0, 1.5, None]] * 2


def test_an_output_that_is_not_in_the_loss() -> None:
    """Its parameters take part with zeros."""

    def body():
        m = DDP(Pair())
        out = m(x())
        out[0].sum().backward()
        return grads(m)

    assert simulated(body) == [[1.5, 0.0]] * 2


class Nothing(autograd.Function):
    """Has no gradient to give."""

    @staticmethod
    def forward(ctx, x, silent):
        ctx.silent = silent
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return (None if ctx.silent else g * 2), None


@pytest.mark.parametrize("unused", [False, True])
def test_undefined_gradients(unused: bool) -> None:
    """A gradient that is undefined on one rank counts as zeros there; on all, as unused."""

    def body():
        m = DDP(Pair(), find_unused_parameters=unused)
        found = []
        for silent in (dist.get_rank() == 0, True):
            m.zero_grad()
            a, b = m(x())
            (a + Nothing.apply(b, silent)).sum().backward()
            found.append(grads(m)[1])
        return found

    assert simulated(body) == [[2.0, None if unused else 0.0]] * 2


def test_who_misses_gradients_is_told_to_all_and_they_may_go_on() -> None:
    def body():
        m = DDP(Pair(), bucket_cap_mb=1e-6)
        sum(m(x())).sum().backward()
        with pytest.raises(AutogradError) as error:
            out = m(x(), "a") if dist.get_rank() == 1 else sum(m(x()))
            out.sum().backward()
        m.zero_grad()
        sum(m(x())).sum().backward()
        return str(error.value), grads(m)

    results = simulated(body, 3)
    assert len({text for text, _ in results}) == 1
    text, after = results[0]
    assert "on rank 1 backward ended, but 1 of 2 parameters received no gradient: b.weight" in text
    assert "b (Linear)" in text and "ranks 0, 2 received all" in text
    assert after == [2.0, 2.0]


# --- static graphs and checkpointing --------------------------------------------------------------


class Shared(nn.Module):
    """One layer in two checkpointed parts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.free = line(2.0), line()

    def forward(self, x, times: int = 2):
        h = self.free(x)
        for _ in range(times):
            h = checkpoint(self.layer, h, use_reentrant=True)
        return h


def test_reentrant_checkpoints_of_a_shared_layer() -> None:
    def body():
        m = DDP(Shared(), static_graph=True)
        out = []
        for _ in range(3):
            m.zero_grad()
            m(x()).sum().backward()
            out.append(grads(m))
        return out

    assert simulated(body) == [[[6.0, 6.0]] * 3] * 2


def test_without_a_static_graph_the_parameter_is_named() -> None:
    def body():
        m = DDP(Shared())
        with pytest.raises(AutogradError, match=r"'layer\.weight'.*static_graph=True"):
            m(x()).sum().backward()
        m.reducer.detach()

    dist.simulate(lambda: (dist.init_process_group(), body()) and None, 1)


def test_a_static_graph_that_changes_is_refused() -> None:
    def body():
        m = DDP(Shared(), static_graph=True)
        m(x()).sum().backward()
        with pytest.raises(AutogradError, match=r"layer\.weight.*3 times.*2 times in the first"):
            m(x(), 3).sum().backward()

    dist.simulate(lambda: (dist.init_process_group(), body()) and None, 1)


def test_reentrant_checkpoint_of_a_layer_used_once() -> None:
    def body():
        m = DDP(Shared())
        for _ in range(2):
            m.zero_grad()
            m(x(), 1).sum().backward()
        return grads(m)

    assert simulated(body) == [[1.5, 3.0]] * 2


def test_static_graph_with_no_sync_counts_synchronised_backwards() -> None:
    def body():
        m = DDP(Shared(), static_graph=True)
        with m.no_sync():
            m(x()).sum().backward()
        m(x()).sum().backward()
        m(x()).sum().backward()
        return grads(m)

    assert simulated(body) == [[18.0, 18.0]] * 2


# --- whose memory gradients are -------------------------------------------------------------------


@pytest.mark.parametrize("views", [False, True])
def test_a_gradient_that_is_kept(views: bool) -> None:
    """Not written over by the next one, unless gradients are views of the buckets."""

    def body():
        m = DDP(line(), gradient_as_bucket_view=views)
        for _ in range(2):  # the buckets are rebuilt after the first
            m.zero_grad()
            m(x()).sum().backward()
        kept, alias = m.module.weight.grad, m.module.weight.grad.detach()
        m.zero_grad()
        m(x(10.0)).sum().backward()
        return kept.item(), alias.item(), grads(m)

    want = (10.0, 10.0, [10.0]) if views else (1.5, 1.5, [10.0])
    assert simulated(body) == [want] * 2


@pytest.mark.parametrize("views", [False, True])
def test_a_gradient_that_the_program_has_made(views: bool) -> None:
    def body():
        m = DDP(line(), gradient_as_bucket_view=views)
        own = m.module.weight.grad = core.wrap(np.full((1, 1), 1.0))
        m(x()).sum().backward()
        return own.item(), m.module.weight.grad is own, grads(m)

    want = (1.0, False, [2.5]) if views else (2.5, True, [2.5])
    assert simulated(body) == [want] * 2


def test_gradients_survive_the_rebuilding_of_buckets() -> None:
    def body():
        m = DDP(Pair(), bucket_cap_mb=1e-6)
        sum(m(x())).sum().backward()
        held = m.module.a.weight.grad
        sum(m(x())).sum().backward()
        return held is m.module.a.weight.grad, grads(m), len(m.reducer.buckets)

    assert simulated(body) == [(True, [3.0, 3.0], 2)] * 2


@pytest.mark.parametrize("none", [False, True])
def test_rebuilt_buckets_take_the_memory_of_the_first_ones(none: bool) -> None:
    def body():
        inner = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(4)])
        m, size = DDP(inner, bucket_cap_mb=0.5), 4 * 4 * 256 * 256
        arena = dist.group.WORLD.transport.hub.arena
        used = []
        for _ in range(3):
            m.zero_grad(set_to_none=none)
            m(core.wrap(np.ones((1, 256), np.float32))).sum().backward()
            used.append((arena.used_bytes() / size, (arena._top - arena.start) / size))
        assert not m.reducer.arrivals and len(m.reducer.buckets) == 2
        return [round(now - then, 1) for then, now in zip(used[0], used[2], strict=True)]

    for used, touched in simulated(body):
        assert used == 0 and touched < 0.6  # the order of sizes differs, so not all fits


# --- parameters that are special ------------------------------------------------------------------


def test_ignored_parameters_and_buffers_are_left_alone() -> None:
    def body():
        inner = Pair()
        inner.register_buffer("own", core.wrap(np.array([float(dist.get_rank())])))
        inner.b.weight.data.fill_(float(dist.get_rank()))
        DDP._set_params_and_buffers_to_ignore_for_model(inner, ["b.weight", "own"])
        m = DDP(inner)
        sum(m(x())).sum().backward()
        return grads(m), inner.b.weight.item(), inner.own.item()

    assert simulated(body) == [([1.5, 1.0], 0.0, 0.0), ([1.5, 2.0], 1.0, 1.0)]


def test_shared_parameters_are_averaged_once() -> None:
    def body():
        inner = Pair()
        inner.b.weight = inner.a.weight
        m = DDP(inner)
        sum(m(x())).sum().backward()
        return grads(m)

    assert simulated(body) == [[3.0]] * 2


# --- wrappers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_train_on_their_own(how) -> None:
    def body():
        m = DDP(Pair(), find_unused_parameters=True)
        sum(m(x())).sum().backward()
        twin = how(m)
        twin.zero_grad()
        twin(x(4.0), "b").sum().backward()
        return grads(m), grads(twin), sorted(twin.state_dict())

    names = ["module.a.weight", "module.b.weight"]
    assert simulated(body) == [([1.5, 1.5], [None, 4.0], names)] * 2


def test_unwrapped_the_module_is_as_before_and_can_be_wrapped_again() -> None:
    def body():
        inner = line()
        m = DDP(inner)
        m(x()).sum().backward()
        del m
        gc.collect()
        inner.zero_grad()
        inner(x()).sum().backward()
        alone = grads(inner)
        inner.zero_grad()
        m = DDP(inner)
        m(x()).sum().backward()
        return alone, grads(inner), inner.weight._node.store is not None

    assert simulated(body) == [([1.0], [1.5], True), ([2.0], [1.5], True)]


def test_two_wrappers_of_one_module_take_turns() -> None:
    def body():
        inner = line()
        first = DDP(inner)
        second = DDP(inner)
        out = []
        for m in (first, second, first):
            inner.zero_grad()
            m(x()).sum().backward()
            out.append(grads(inner)[0])
        return out

    assert simulated(body) == [[1.5] * 3] * 2


def test_buffers_that_were_assigned_anew_are_broadcast() -> None:
    def body():
        inner = line()
        inner.register_buffer("seen", core.wrap(np.zeros(1)))
        m = DDP(inner)
        inner.seen = core.wrap(np.array([1.0 + dist.get_rank()]))
        m(x())
        first = inner.seen.item()
        with m.no_sync():  # the next forward does not broadcast either
            m(x())
        inner.seen.fill_(5.0 + dist.get_rank())
        m(x())
        return first, inner.seen.item()

    assert simulated(body) == [(1.0, 5.0), (1.0, 6.0)]


def test_half_types_are_averaged() -> None:
    def body():
        manual_seed(0)
        m = DDP(nn.Linear(2, 2).bfloat16())
        m(core.wrap(np.ones((1, 2))).bfloat16() * (1 + dist.get_rank())).sum().backward()
        return m.module.weight.grad.float().tolist()

    assert simulated(body) == [[[1.5, 1.5], [1.5, 1.5]]] * 2


def test_gradients_are_computed_in_their_places(monkeypatch) -> None:
    """Where a weight gets one gradient only, and nobody looks at it before, it is not copied."""

    def body():
        m = DDP(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double())
        first, last = m.module[0].weight, m.module[1].weight
        given = []
        inner = first._node.store
        first._node.store = lambda leaf, g: (given.append(g), inner(leaf, g))
        m.reducer.stores[0] = first._node.store
        data = core.wrap(np.ones((2, 3)) * (1 + dist.get_rank()))
        for _ in range(2):
            m.zero_grad()
            m(data).sum().backward()
        placed = given[-1] is m.reducer.house.slots[0]
        hook = first.register_hook(lambda g: None)
        m.zero_grad()
        m(data).sum().backward()
        watched = given[-1] is m.reducer.house.slots[0]
        hook.remove()
        m.zero_grad()
        (m(data) + m(data)).sum().backward()
        twice = given[-1] is m.reducer.house.slots[0]
        want = last.detach().numpy().sum(0)[:, None] * np.full((1, 3), 2 * 3.0)
        return placed, watched, twice, np.abs(first.grad.numpy() - want).max() < 1e-12

    assert simulated(body) == [(True, False, False, True)] * 2


# --- asked for now and then ----------------------------------------------------------------------


@pytest.mark.parametrize("where", list(BufferCommHookLocation))
def test_a_hook_synchronises_the_buffers(where) -> None:
    def total(state, named):
        state.append(sorted(named))
        return [dist.all_reduce(b, async_op=True).get_future() for b in named.values()]

    def body():
        inner, calls = line(), []
        inner.register_buffer("seen", core.wrap(np.array([1.0])))
        m = DDP(inner)
        m._register_buffer_comm_hook(calls, total, where)
        assert m.will_sync_module_buffers
        m(x()).sum().backward()
        return inner.seen.item(), calls

    assert simulated(body, 3) == [(3.0, [["seen"]])] * 3


def test_another_group_from_now_on() -> None:
    def body():
        m = DDP(Pair(), bucket_cap_mb=1e-6)
        sum(m(x())).sum().backward()
        pair = dist.new_group([0, 1]), dist.new_group([2])
        m._update_process_group(pair[dist.get_rank() == 2])
        out = []
        for _ in range(3):
            m.zero_grad()
            sum(m(x())).sum().backward()
            out.append(grads(m))
        m._check_reducer_finalized()
        return out

    assert simulated(body, 3) == [[[1.5, 1.5]] * 3] * 2 + [[[3.0, 3.0]] * 3]


def test_whether_the_reduction_is_over() -> None:
    def body():
        m = DDP(line())
        out = m(x())
        with pytest.raises(AutogradError, match="Expected to have finished reduction"):
            m._check_reducer_finalized()
        out.sum().backward()
        m._check_reducer_finalized()
        m._remove_autograd_hooks()
        m.zero_grad()
        m.module(x()).sum().backward()
        return grads(m)

    assert simulated(body) == [[1.0], [2.0]]


@pytest.mark.parametrize("hook", [False, True])
def test_static_graph_leaves_what_no_rank_uses_alone(hook):
    """``layers[2]`` is used by rank 1 only, ``layers[1]`` by none."""

    class Some(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

        def forward(self, x):
            x = self.layers[0](x)
            return self.layers[2](x) if dist.get_rank() == 1 else x

    def body():
        dist.init_process_group()
        m = DDP(Some(), static_graph=True)
        if hook:
            m.register_comm_hook(None, allreduce_hook)
        seen = []
        for _ in range(3):
            m.zero_grad()
            m(core.wrap(np.ones((1, 2), np.float32))).sum().backward()
            seen.append([layer.bias.grad is None for layer in m.module.layers])
        return seen, m.module.layers[2].bias.grad.tolist()

    for seen, last in dist.simulate(body, 2).results:
        assert seen == [[False, True, False]] * 3
        assert last == [0.5, 0.5]


def test_a_module_that_is_converted_after_it_was_wrapped():
    def body():
        m = DDP(nn.Linear(2, 2))
        m.double()
        with pytest.raises(DTypeError, match=r"'weight' was float32 when .* and is float64 now"):
            m(core.wrap(np.ones((1, 2))))

    simulated(body)


@pytest.mark.parametrize(
    ("settings", "first", "after_join"),
    [
        ({}, 0.0, 1.0),
        ({"broadcast_buffers": False}, None, None),
        ({"forward_sync_buffers": False}, 0.0, 0.0),
        ({"broadcast_buffers": False, "forward_sync_buffers": True}, 0.0, 1.0),
        ({"init_sync": False, "forward_sync_buffers": False}, None, None),
    ],
)
def test_when_buffers_are_taken_from_another_rank(settings, first, after_join) -> None:
    def body() -> None:
        me = dist.get_rank()
        inner = line()
        inner.register_buffer("seen", core.wrap(np.array([float(me)])))
        m = DDP(inner, **settings)
        own = float(me)
        assert inner.seen.item() == (own if first is None else first)
        assert m.broadcast_buffers == m.forward_sync_buffers
        with m.join():
            for _ in range(1 + me):  # rank 1 is the last one
                m(x()).sum().backward()
            if m.forward_sync_buffers:
                inner.seen.fill_(own)
        assert inner.seen.item() == (own if after_join is None else after_join)

    simulated(body)


@pytest.mark.parametrize("find", [False, True])
def test_parameters_that_are_frozen_later_are_left_out(find) -> None:
    def body():
        m = DDP(Pair(), find_unused_parameters=find)
        sum(m(x())).sum().backward()
        frozen = next(m.parameters())
        before = frozen.grad.tolist()
        frozen.requires_grad_(False)
        for _ in range(3):
            for p in m.parameters():
                p.grad = p.grad if p is frozen else None
            sum(m(x())).sum().backward()
        return frozen.grad.tolist() == before, grads(m)[1:]

    found = simulated(body)
    assert found[0] == found[1] and found[0][0]
