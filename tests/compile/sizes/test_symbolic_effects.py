"""Steps that reach other ranks, for sizes that change: few captures, the bits of eager steps."""

from __future__ import annotations

import re

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from support.cases.training_steps import clipped, plain, zeroed
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

LENGTHS = [[4, 5, 9, 4, 17, 2, 1, 6, 30, 8], [7, 3, 3, 12, 2, 2, 5, 21, 4, 10]]  # of two ranks


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def two_batches(ddp, opt, x, y):
    opt.zero_grad()
    with ddp.no_sync():
        F.cross_entropy(ddp(x), y).backward()
    loss = F.cross_entropy(ddp(x * 0.5), y)
    loss.backward()
    opt.step()
    return loss


def measured(ddp, opt, x, y):
    """The mean loss over all rows of all ranks."""
    opt.zero_grad()
    out = ddp(x)
    loss = F.cross_entropy(out, y, reduction="sum")
    seen = dt.tensor([float(x.shape[0]), 0.0]) + dt.stack([dt.zeros(()), loss.detach()])
    dist.all_reduce(seen)
    (loss / x.shape[0]).backward()
    opt.step()
    return seen[1] / seen[0]


def forward_alone(ddp, opt, x, y):
    return F.cross_entropy(ddp(x), y)


STEPS = [plain, zeroed, two_batches, clipped]


def trained(make, step, compiled: bool, lengths: list, dynamic: bool | None) -> list:
    """What a step gives for batches of these lengths, the parameters at the end, and what
    was captured."""
    dt.manual_seed(3)
    ddp = dist.DistributedDataParallel(make(), bucket_cap_mb=0.0003)
    opt = optim.AdamW(ddp.parameters(), lr=1e-2)
    run = dt.compile(step, dynamic=dynamic) if compiled else step
    rng = np.random.default_rng(dist.get_rank())
    losses = []
    for n in lengths[dist.get_rank()]:
        x = dt.tensor(rng.standard_normal((n, 6)).astype(np.float32))
        loss = run(ddp, opt, x, dt.tensor(rng.integers(0, 3, n)))
        if step is forward_alone:
            opt.zero_grad()
            loss.backward()
            opt.step()
        losses.append([t.item() for t in dt.tree.leaves(loss)])
    state = [t.numpy().tobytes() for t in ddp.state_dict().values()]
    return [losses, state, run.explain() if compiled else "0 captured"]


def agree(make, step, lengths: list, most: int, dynamic: bool | None = None) -> str:
    """Bits of eager steps, by at most so many captures on a rank. What was told of them."""
    eager = on_ranks(lambda: trained(make, step, False, lengths, dynamic))
    compiled = on_ranks(lambda: trained(make, step, True, lengths, dynamic))
    assert [r[:2] for r in compiled] == [r[:2] for r in eager]
    counts = [int(re.search(r"(\d+) captured", told)[1]) for *_, told in compiled]
    assert min(counts) >= 1 and max(counts) <= most, compiled[0][2]
    return compiled[0][2]


@pytest.mark.parametrize("step", [*STEPS, forward_alone])
def test_one_capture_stands_for_batches_of_many_lengths(step) -> None:
    agree(mlp, step, LENGTHS, 4)


@pytest.mark.parametrize("step", [plain, forward_alone])
def test_with_symbols_from_the_first_call_on(step) -> None:
    assert "symbols: s0" in agree(mlp, step, LENGTHS, 3, True)


def test_what_takes_a_size_as_a_number_is_captured_for_each() -> None:
    agree(mlp, measured, LENGTHS, 10)


def test_activations_of_any_length_are_summed_over_ranks() -> None:
    def summed(ddp, opt, x, y):
        opt.zero_grad()
        out = ddp(x)
        shared = out.detach().clone()
        dist.all_reduce(shared)
        loss = F.cross_entropy(out + shared * 1e-3, y)
        loss.backward()
        opt.step()
        return loss

    told = agree(mlp, summed, LENGTHS[:1] * 2, 10)
    assert "after work with other ranks" in told and "not captured" not in told


def test_what_tells_others_a_size_is_captured_for_each() -> None:
    def told(ddp, opt, x, y):
        opt.zero_grad()
        loss = F.cross_entropy(ddp(x), y)
        loss.backward()
        both, parts = dt.zeros(x.shape[0]), [x.shape[0] // 2] * 2
        dist.all_to_all_single(both, x[:, 0].contiguous(), parts, parts)
        opt.step()
        return loss + both.sum()

    told_of = agree(mlp, told, [[4, 6, 12, 8]] * 2, 4)
    assert "tells other ranks a size" in told_of or "after work with other ranks" in told_of
