"""How long a process has been stopped, counted by what was seen."""

from __future__ import annotations

import os
import signal
import time

from disttrain.liveness import LOOK_EVERY, STOPPED_LIMIT, Sample, Stillness, sample, told


def seen(*looks: tuple[float, str, int]) -> tuple[str, float]:
    """What is known after looks at (time, state, ticks)."""
    stillness = Stillness()
    for at, state, cpu in looks:
        stillness.look(at, {0: Sample(state, cpu)})
    return stillness.still(0)


def steadily(state: str, n: int, since: float = 0.0) -> list[tuple[float, str, int]]:
    return [(since + i * LOOK_EVERY, state, 5) for i in range(n)]


def test_only_what_was_seen_counts():
    assert seen(*steadily("T", 5)) == ("T", 4 * LOOK_EVERY)
    assert seen((0.0, "T", 1), (100.0, "T", 1)) == ("T", 2 * LOOK_EVERY)  # the observer was away
    assert seen(*steadily("T", 5), (9.0, "T", 6)) == ("T", 0.0)  # it has run in between
    assert seen(*steadily("T", 5), (9.0, "S", 5)) == ("", 0.0)
    assert seen(*steadily("R", 99)) == seen(*steadily("S", 99)) == ("", 0.0)


def test_only_a_stopped_process_is_lost():
    for state, lost in (("T", True), ("t", False), ("D", False)):
        stillness = Stillness()
        for at, *rest in steadily(state, int(STOPPED_LIMIT / LOOK_EVERY) + 2):
            assert not (at < STOPPED_LIMIT and stillness.is_lost(0))
            stillness.look(at, {0: Sample(*rest)})
        assert stillness.is_lost(0) == lost
    stillness.look(99.0, {})
    assert not stillness.is_lost(0)


def test_short_stops_are_never_added_up():
    stillness = Stillness()
    for i in range(1000):
        at = i * LOOK_EVERY
        stillness.look(at, {0: Sample("T" if at % 5 < 1 else "S", i)})
        assert stillness.still(0)[1] <= 1.0


def test_real_processes():
    assert sample(os.getpid()).state == "R"
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    assert sample(pid).state == "T"
    assert "stopped: state T (stopped) for 1.0 s" in told(pid, "T", 1.0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert sample(pid) == Sample("")
