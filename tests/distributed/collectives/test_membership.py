"""Collectives in captured functions: repeated where all wait, and said where not; outsiders."""

from __future__ import annotations

import warnings

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.errors import CollectiveMismatch, ConfigError
from disttrain_launcher import launch

SIZE = 2


def several(x):
    """Every kind of collective that is repeated, with results, arguments and own tensors."""
    size = SIZE
    y = x * 2
    dist.all_reduce(y)
    whole = dt.zeros(size * 4)
    dist.all_gather_into_tensor(whole, y + 1)
    dist.broadcast(x, 1)
    part = dt.zeros(4)
    dist.reduce_scatter_tensor(part, whole * 1.5, op=dist.ReduceOp.MAX)
    parts = [dt.zeros(4) for _ in range(size)]
    dist.all_gather(parts, part - x)
    dist.reduce_scatter(part, [p + 1 for p in parts])
    swapped = dt.zeros(size * 2)
    dist.all_to_all_single(swapped, parts[0][:size].repeat_interleave(2))
    there = [dt.zeros(4) for _ in range(size)]
    dist.all_to_all(there, parts)
    dist.reduce(part, dst=0)
    return y, whole, part, swapped, *there


def compare(body) -> tuple[list[bool], str]:
    dist.init_process_group()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = dt.compile(body)
        equal = []
        for i in range(5):
            a = dt.arange(4).float() * (dist.get_rank() + 1 + i)
            b = a.clone()
            expected, found = body(a), run(b)
            pairs = zip((a, *expected), (b, *found), strict=True)
            equal.append(all(s.tolist() == t.tolist() for s, t in pairs))
    return equal, run.explain()


def test_collectives_are_repeated_by_replays():
    for equal, said in launch(lambda: compare(several), 2):
        assert all(equal) and "1 captured, 0 eager" in said, said


def at_once(x):
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    return (x * 2,)


def by_others(x):
    dist.barrier()
    return (x * 2,)


@pytest.mark.parametrize("body", [at_once, by_others])
def test_what_is_not_repeated_runs_eagerly_and_is_named(body):
    for equal, said in launch(lambda: compare(body), 2):
        assert all(equal) and "communication between ranks" in said, said


def of_parts(x):
    """A write to a view of what is outside."""
    dist.all_reduce(x[1:3])
    return (x + 1,)


def test_a_collective_on_a_part_of_an_argument():
    for equal, said in launch(lambda: compare(of_parts), 2):
        assert all(equal) and "0 eager" in said, said


def mismatched() -> str:
    """Rank 1 reduces another shape, where rank 0 replays."""
    dist.init_process_group()

    def body(x):
        dist.all_reduce(x)
        return x + 1

    run = dt.compile(body)
    for _ in range(4):
        run(dt.ones(3))
    with pytest.raises(CollectiveMismatch) as caught:
        run(dt.ones(3 + dist.get_rank()))
    return str(caught.value)


def test_a_mismatch_in_a_replay_is_told_to_all():
    said = launch(mismatched, 2)
    assert all("all_reduce" in text for text in said)


def test_who_takes_part():
    def rank() -> list[str]:
        dist.init_process_group()
        group = dist.new_group([0])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist.all_reduce(dt.ones(1), group=group)
        with pytest.raises(ConfigError, match="Must specify global_rank or group_rank"):
            dist.broadcast(dt.ones(1))
        return [str(w.message) for w in caught]

    inside, outside = launch(rank, 2)
    assert not inside and "does not belong to the given group" in outside[0]
