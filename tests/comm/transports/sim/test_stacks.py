"""Stacks of ranks that stand still: those at one place are told together."""

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from disttrain.comm.transports.sim.stacks import ranks_text, standing


@dataclass
class Standing:
    """As much of a task as is looked at."""

    rank: int
    thread: Any = None
    name: str = ""
    wait: Any = None


class Need:
    """A wait, as a text."""

    def __init__(self, text):
        self.text = text

    def what(self):
        return self.text


@pytest.fixture
def stood():
    """Start threads that stand at one of two places until the test ends."""
    leave, started = threading.Event(), []

    def here(ready):
        ready.set()
        leave.wait(30)

    def there(ready):
        ready.set()
        leave.wait(30)

    def start(place):
        ready = threading.Event()
        thread = threading.Thread(target={"here": here, "there": there}[place], args=(ready,))
        thread.start()
        started.append(thread)
        assert ready.wait(20)
        return thread

    yield start
    leave.set()
    for thread in started:
        thread.join(20)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "rank 3"), ([0, 1], "ranks 0-1"), ([5, 0, 2, 1, 7, 6], "ranks 0-2, 5-7"),
     ([4, 2, 0], "ranks 0, 2, 4")],
)  # fmt: skip
def test_ranks_in_short(ranks, text):
    assert ranks_text(ranks) == text


def test_the_most_crowded_place_comes_first(stood):
    need = Need("all_reduce of 3 others")
    tasks = [Standing(0, stood("there"), wait=need)]
    tasks += [Standing(rank, stood("here"), wait=need) for rank in (1, 2, 3)]
    first, second = standing(tasks)
    assert first.startswith("ranks 1-3: all_reduce of 3 others\n")
    assert second.startswith("rank 0: all_reduce of 3 others\n")
    assert " in here: " in first and " in there: " in second
    assert f"{__file__}:" in first


def test_one_that_runs_and_one_that_has_no_thread(stood):
    found = standing([Standing(0, stood("here")), Standing(1)])
    assert any(block.startswith("rank 0: runs\n") for block in found)
    assert "rank 1: runs" in found


def test_what_a_rank_has_beside_its_program(stood):
    need = Need("a message")
    inside = Standing(0, stood("here"), "loader", need)
    outside = Standing(0, None, "server", need)
    (block,) = standing([inside, outside])
    assert block.startswith("rank 0 (loader): a message\n")
