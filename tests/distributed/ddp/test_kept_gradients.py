"""Gradients that a program keeps over the next steps: they stay as they are, however it looks at
them, and the steps go on as if it had not."""

from __future__ import annotations

import gc
import itertools
from contextlib import nullcontext

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.fsdp import fully_shard

pytestmark = pytest.mark.simulated

STEPS = 4
LOOKS = {
    "itself": lambda g: g,
    "detached": lambda g: g.detach(),
    "data": lambda g: g.data,
    "numpy": lambda g: g.numpy(),
    "part of numpy": lambda g: g.numpy()[:1],
    "turned numpy": lambda g: g.numpy().T,
    "row": lambda g: g[0],
    "row, detached": lambda g: g[0].detach(),
    "flat": lambda g: g.view(-1)[1:],
    "bytes": lambda g: memoryview(g.numpy()),
    "from numpy": lambda g: dt.from_numpy(g.numpy()),
}


def numbers(seen) -> np.ndarray:
    return np.array(seen.detach().numpy() if isinstance(seen, dt.Tensor) else seen)


def local(g):
    return g.to_local() if hasattr(g, "to_local") else g


def model():
    dt.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()


def replicated(m):
    return dist.DistributedDataParallel(m)


def unused_found(m):
    return dist.DistributedDataParallel(m, find_unused_parameters=True)


def sharded(m):
    return fully_shard(m)


def sharded_by_layer(m):
    for layer in (m[0], m[2]):
        fully_shard(layer)
    return fully_shard(m)


def trained(strategy, look, ranks: int = 2, syncs: bool = True) -> list:
    """What ``look`` saw of each gradient, in each step: then, and in the end; and the weights."""

    def run():
        dist.init_process_group()
        m = strategy(model())
        kept, before = [], []
        for step in range(STEPS):
            rng = np.random.default_rng(step)
            x = dt.from_numpy(rng.normal(size=(4, 4)))[dist.get_rank() :: ranks]
            alone = not syncs and step % 2 == 1
            with m.no_sync() if alone else nullcontext():
                m(x).square().sum().backward()
            grads = [local(p.grad) for p in m.parameters()]
            for a, b in itertools.combinations(grads, 2):
                assert not np.shares_memory(a.numpy(), b.numpy())
            if look is not None:
                kept += [look(g) for g in grads]
                before += [numbers(seen) for seen in kept[-len(grads) :]]
            with dt.no_grad():
                for p in () if alone else m.parameters():
                    p -= 0.1 * p.grad
            del grads
            m.zero_grad(set_to_none=True)
        after = [numbers(seen) for seen in kept]
        weights = [local(p.detach()).numpy().copy() for p in m.parameters()]
        dist.destroy_process_group()
        return before, after, weights

    return dist.simulate(run, ranks).results


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    ("strategy", "syncs"),
    [(replicated, True), (replicated, False), (unused_found, True), (sharded, True),
     (sharded_by_layer, True)],
)  # fmt: skip
def test_what_is_kept_stays_and_training_goes_on(strategy, syncs, look):
    plain = trained(strategy, None, syncs=syncs)
    for (before, after, weights), (_, _, want) in zip(
        trained(strategy, LOOKS[look], syncs=syncs), plain, strict=True
    ):
        assert len(before) == 4 * STEPS
        assert all((a == b).all() for a, b in zip(before, after, strict=True))
        assert all((a == b).all() for a, b in zip(weights, want, strict=True))


@pytest.mark.parametrize("strategy", [replicated, sharded])
def test_memory_that_nobody_kept_is_used_again(strategy):
    def run():
        dist.init_process_group()
        m, seen = strategy(model()), []
        for _ in range(6):
            m(dt.ones(2, 4, dtype=dt.float64)).sum().backward()
            seen.append([local(p.grad).data_ptr() for p in m.parameters()])
            m.zero_grad(set_to_none=True)
            gc.collect()
        dist.destroy_process_group()
        return seen

    for seen in dist.simulate(run, 2).results:
        assert seen[3] == seen[4] == seen[5]


@pytest.mark.parametrize("strategy", [replicated, sharded])
def test_what_hooks_keep_is_apart_from_grad(strategy):
    def run():
        dist.init_process_group()
        m, seen = strategy(model()), []
        for p in m.parameters():
            p.register_hook(lambda g: seen.append(local(g)))
        for _ in range(2):
            m(dt.ones(2, 4, dtype=dt.float64)).sum().backward()
            before = [numbers(g) for g in seen]
            for p in m.parameters():
                assert not any(np.shares_memory(local(p.grad).numpy(), g.numpy()) for g in seen)
                local(p.grad).fill_(np.nan)
            assert all((g.numpy() == b).all() for g, b in zip(seen, before, strict=True))
            m.zero_grad(set_to_none=True)
        dist.destroy_process_group()
        return len(seen)

    assert dist.simulate(run, 2).results == [8, 8]


@pytest.mark.parametrize("placement", [dist.tensor.Replicate(), dist.tensor.Shard(0)], ids=repr)
@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a + b,
        lambda a, b: a.clone() - b,
        lambda a, b: a + b + a,
        lambda a, b: a.clone(),
    ],
    ids=["sum", "difference", "three", "clone"],
)
def test_of_distributed_tensors(placement, fn):
    def run():
        dist.init_process_group()
        mesh, seen = dist.init_device_mesh("cpu", (2,)), []
        a, b, g = (dist.tensor.distribute_tensor(dt.ones(4, 3), mesh, [placement]) for _ in "abg")
        a.requires_grad_().register_hook(lambda g: seen.append(g))
        fn(a, b.requires_grad_()).backward(g)
        owned = [local(t.grad).numpy() for t in (a, b) if t.grad is not None]
        shown = [local(t).numpy() for t in (g, *seen)]
        dist.destroy_process_group()
        return [np.shares_memory(x, y) for x in owned for y in [*owned, *shown] if x is not y]

    assert not any(shared for found in dist.simulate(run, 2).results for shared in found)
