"""Small sums that come one behind the other go in one message, with the bits of separate ones."""

from __future__ import annotations

from typing import Any

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.compile import capture
from disttrain.compile.passes import coalesce
from disttrain.errors import CollectiveMismatch
from disttrain_launcher import launch
from support.simulated import on_ranks


def names(fn: Any, *args: Any) -> list[str]:
    return [ins.prim.name for ins in coalesce(capture(fn)(*args).graph).instructions]


def metrics(x: Any) -> tuple:
    """Three sums, and what is done with the first between them."""
    loss = x.square().mean()
    dist.all_reduce(loss)
    loss = loss / 2
    right = (x > 0).float().sum()
    dist.all_reduce(right)
    most = x.abs().sum(0)
    dist.all_reduce(most)
    return loss, right, most


def needing(x: Any) -> tuple:
    total = x.sum()
    dist.all_reduce(total)
    share = x.sum(0) / total
    dist.all_reduce(share)
    return total, share


def others(x: Any) -> tuple:
    """Other operators, types, lengths, memory."""
    a, b, c, d = x.sum(), x.amax(), x.double().sum(), x.reshape(-1).repeat(4000)
    dist.all_reduce(a)
    dist.all_reduce(b, dist.ReduceOp.MAX)
    dist.all_reduce(c)
    dist.all_reduce(d)
    dist.all_reduce(a)
    dist.all_reduce(a[None])
    return a, b, c, d


@pytest.mark.simulated
def test_neighbours_are_joined_at_the_last_one():
    (found, _) = on_ranks(lambda: names(metrics, dt.ones(4, 3)))
    assert found.count("all_reduce_each") == 1 and "all_reduce" not in found
    assert found.index("all_reduce_each") < found.index("div")


@pytest.mark.simulated
@pytest.mark.parametrize("fn", [needing, others])
def test_what_needs_another_one_or_is_of_another_kind_stays_apart(fn):
    (found, _) = on_ranks(lambda: names(fn, dt.ones(4, 3)))
    assert "all_reduce_each" not in found


@pytest.mark.simulated
def test_arguments_which_may_share_memory_stay_apart():
    def fn(x: Any, y: Any) -> None:
        dist.all_reduce(x)
        dist.all_reduce(y)

    (found, _) = on_ranks(lambda: names(fn, dt.ones(3), dt.ones(3)))
    assert found == ["all_reduce", "all_reduce"]


def several(fn: Any, uneven: bool) -> tuple[bool, str]:
    dist.init_process_group()
    run, equal = dt.compile(fn, dynamic=False), True
    for i in range(10):
        dt.manual_seed(dist.get_rank() + i)
        x = dt.randn(5 if uneven and i > 3 and (i + dist.get_rank()) % 3 == 0 else 4, 3)
        found, expected = run(x), fn(x)
        equal &= all(a.numpy().tobytes() == b.numpy().tobytes()
                     for a, b in zip(found, expected, strict=True))  # fmt: skip
    dist.destroy_process_group()
    return equal, run.explain()


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("fn", [metrics, needing, others])
def test_bits_of_separate_ones(fn, ranks):
    for equal, said in launch(lambda: several(fn, False), ranks):
        assert equal and " 0 eager" in said
        assert ("3 all_reduce are one message" in said) == (fn is metrics)


def test_ranks_may_send_them_one_by_one_and_together():
    for equal, said in launch(lambda: several(metrics, True), 3):
        assert equal and "3 all_reduce are one message" in said


def other_step() -> str:
    """Rank 1 leaves the step after its first sum, when both replay."""
    dist.init_process_group()
    run, x = dt.compile(metrics), dt.ones(4, 3)
    for _ in range(4):
        run(x)
    with pytest.raises(CollectiveMismatch) as caught:
        if dist.get_rank():
            dist.all_reduce(x.sum())
            dist.all_reduce(dt.ones(7))
        else:
            run(x)
    return str(caught.value)


def test_headers_of_all_of_them_are_compared():
    for text in launch(other_step, 2):
        assert "float32[7]" in text or "(7,)" in text or "7" in text
