"""Steps taken together: results for the coordinator, plans for each, and one error for all."""

from __future__ import annotations

import pickle

import pytest

from disttrain import distributed as dist
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import agreement
from disttrain.distributed.checkpoint.agreement import Together
from disttrain.errors import CommError, ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def together(coordinator: int = 0) -> Together:
    return Together(dist.group.WORLD, coordinator)


def test_the_coordinator_hears_all_and_the_others_none():
    def body():
        found = together(1)
        return found.each("step", lambda: dist.get_rank() * 10), found.is_coordinator

    assert on_ranks(body, 3) == [([], False), ([0, 10, 20], True), ([], False)]


def test_what_one_does_all_have():
    def body():
        return together(2).one("step", lambda: {"by": dist.get_rank()})

    assert on_ranks(body, 3) == [{"by": 2}] * 3


def test_of_all_parts_each_gets_one():
    def body():
        rank = dist.get_rank()
        return together().planned("plan", lambda: rank + 1, lambda parts: [sum(parts), *parts[1:]])

    assert on_ranks(body, 3) == [6, 2, 3]


def test_alone_nothing_travels():
    alone, thing = Together(None, 3), object()
    assert (alone.rank, alone.size, alone.is_coordinator) == (0, 1, False)
    alone = Together(None)
    assert (
        alone.each("step", lambda: thing) == [thing] and alone.one("step", lambda: thing) is thing
    )
    assert alone.planned("plan", lambda: thing, lambda parts: parts) is thing
    with pytest.raises(dcp.CheckpointException, match=r"step failed .*\n  rank 0: KeyError: 'x'"):
        alone.each("step", lambda: {}["x"])


@pytest.mark.parametrize("way", ["each", "one", "planned"])
def test_an_error_of_one_is_the_error_of_all(way):
    def body():
        rank = dist.get_rank()

        def fails(*given):
            if rank == 1:
                raise ConfigError("no such thing")
            return rank

        found = together(1)
        with pytest.raises(dcp.CheckpointException) as told:
            if way == "planned":
                found.planned("step", lambda: rank, fails)
            else:
                getattr(found, way)("step", fails)
        (error, lines) = told.value.failures[1]
        return str(told.value), type(error), error.__cause__ is None, bool(lines)

    found = on_ranks(body, 3)
    assert len({f[0] for f in found}) == 1 and "rank 1: " in found[0][0]
    assert all(f[1] is ConfigError for f in found)
    assert [f[3] for f in found] == [False, True, False]  # the lines are where it was raised


def test_several_errors_are_told_together_and_alike_ones_once():
    def body():
        rank = dist.get_rank()

        def fails():
            if rank < 2:
                raise FileNotFoundError(2, "No such file", "a/b")
            if rank == 2:
                raise KeyError("k")
            return rank

        with pytest.raises(dcp.CheckpointException) as told:
            together().each("write", fails)
        return str(told.value)

    first, *others = on_ranks(body, 4)
    assert all(text == first for text in others)
    assert "rank 0, 1: FileNotFoundError: [Errno 2] No such file: 'a/b'" in first
    assert "rank 2: KeyError: 'k'" in first


class OwnError(Exception):
    """One that other ranks cannot make."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize(
    "error",
    [ConfigError("text"), OSError(28, "full", "file"), OSError("plain"), KeyError("k"),
     OwnError(1, 2), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), ZeroDivisionError()],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_what_is_heard_reads_as_what_was_raised(error):
    heard = agreement._heard(agreement._told(error))
    assert str(heard) == str(error) and type(heard).__name__ == type(error).__name__
    assert type(heard).__module__ == type(error).__module__
    again = pickle.loads(pickle.dumps(heard))
    assert str(again) == str(error) and type(again).__qualname__ == type(heard).__qualname__


def test_a_name_of_no_error_makes_none():
    heard = agreement._heard(["failed", "builtins", "exit", "text", None, ""])
    assert isinstance(heard, RuntimeError) and type(heard).__name__ == "exit"


def test_where_the_group_is_broken_nothing_is_exchanged():
    def body():
        found = together()

        def breaks():
            raise CommError("the link is down")

        with pytest.raises(CommError, match="the link is down"):
            found.each("step", breaks)

    on_ranks(body)
