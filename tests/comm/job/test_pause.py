"""The clock of a job stands while a rank is in the debugger, and goes on from there."""

from __future__ import annotations

import mmap
import threading
import time

from disttrain import context
from disttrain.comm.job.pause import Pause
from disttrain.comm.job.segment import Segment


def test_the_clock_stands_and_goes_on() -> None:
    pause = Pause(mmap.mmap(-1, 4096))
    assert not pause.on and abs(pause.now() - time.monotonic()) < 1
    assert pause.set(True) == 0.0 and pause.on
    stands = pause.now()
    time.sleep(0.05)
    assert pause.now() == stands
    assert pause.set(True) == 0.0  # again: nothing changes
    stood = pause.set(False)
    assert stood >= 0.05 and not pause.on
    assert stands <= pause.now() <= time.monotonic() - 0.05
    before = pause.now()
    pause.set(True)
    time.sleep(0.02)
    pause.set(False)
    assert pause.now() >= before  # never back
    pause.close()


def test_readers_see_it_whole() -> None:
    pause = Pause(mmap.mmap(-1, 4096))
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            pause.set(True)
            pause.set(False)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        last = 0.0
        for _ in range(20_000):
            now = pause.now()
            assert last <= now <= time.monotonic()
            last = now
    finally:
        over.set()
        writer.join()


def test_a_wait_has_its_time_back() -> None:
    """Its deadline has passed long ago, and counts from where it was."""
    segment = Segment.create(1, arena_bytes=1 << 20)
    pause = Pause(segment.buffer)
    waiter = context.Waiter()
    waiter.clock = pause.now
    began, ends = time.monotonic(), []

    def stand_still() -> None:
        pause.set(True)
        time.sleep(0.6)
        ends.append(time.monotonic())
        pause.set(False)

    other = threading.Thread(target=stand_still)
    other.start()
    try:
        waiter.wait_until(lambda: False, lambda: "nothing", 0.2)
    except context.WaitTimeout:
        ended = time.monotonic()
    other.join()
    assert ended >= ends[0] and ended - began >= 0.7
    pause.close()
    segment.close()
