"""Lines of work on a device: what is kept until the gathering line comes after its reading."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from disttrain.backends.device.memory import HOST
from disttrain.distributed.fsdp.shards.lanes import Lanes, Line

pytestmark = pytest.mark.simulated


class Recorded:
    """A memory that notes what lines of work are told."""

    on_host = False

    def __init__(self):
        self.told = []

    def lane(self, priority=0):
        memory = self

        class Lane:
            def follow(self):
                memory.told.append("follow")

            def after(self, mark):
                memory.told.append(("after", mark))

        return Lane()

    def mark(self):
        self.told.append("mark")
        return len(self.told)


def test_what_was_read_is_kept_until_the_gathers_come_after_it():
    memory = Recorded()
    line, array = Line(memory), np.zeros(3)
    gone = weakref.ref(array)
    line.keep(array)
    del array
    assert gone() is not None and memory.told == ["mark"]
    line.release()
    assert gone() is None and memory.told == ["mark", ("after", 1)]
    line.release()
    assert len(memory.told) == 2


def test_on_the_host_nothing_is_kept():
    line, array = Line(HOST), np.zeros(3)
    gone = weakref.ref(array)
    line.keep(array)
    del array
    assert gone() is None
    line.follow()
    line.release()


def test_each_memory_has_one_line_which_sees_what_was_written_before():
    lanes, one, two = Lanes(), Recorded(), Recorded()
    first = lanes.of(one)
    assert lanes.of(one) is first and lanes.of(two) is not first and one.told == ["follow"]
    first.keep(np.zeros(1))
    lanes.follow()
    lanes.release()
    assert one.told == ["follow", "mark", "follow", ("after", 2)] and two.told == ["follow"] * 2
