"""What the kernel says of processes, held against what Python knows of its own."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from disttrain.watch import processes
from disttrain.watch.processes import Usage, usage

SECOND = 10**9


def test_this_process_is_found_with_its_times_and_its_memory():
    before = time.process_time()
    found = usage(os.getpid())
    assert found.state in ("R", "S") and found.start == processes.started_at(os.getpid()) > 0
    assert abs(found.cpu - before) < 0.5  # the kernel counts in ticks
    assert abs(found.at - time.monotonic_ns()) < 60 * SECOND
    with open("/proc/self/status", encoding="ascii") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    assert found.memory == pytest.approx(resident << 10, rel=0.2)


def test_a_name_with_brackets_and_spaces_moves_no_field(tmp_path):
    odd = tmp_path / "a ) S 1 (b"
    odd.symlink_to("/bin/sleep")
    child = os.posix_spawn(odd, ["sleep", "60"], {})
    try:
        found = usage(child)
        assert found.state in processes.STATES and found.start >= processes.started_at(os.getpid())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_who_has_ended_is_gone_before_and_after_it_was_collected():
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert usage(child).state == "Z" and processes.started_at(child) == 0
    os.waitpid(child, 0)
    assert usage(child) == Usage("") and processes.started_at(child) == 0
    for ask, nothing in (
        (processes.deprived, 0), (processes.control_group, ""), (processes.sleeps_in, ""),
    ):  # fmt: skip
        assert ask(child) == nothing
    assert not processes.catches(child, signal.SIGINT) and not processes.thread_for(child, 10)


def test_processors_kept_busy_between_two_looks():
    before = Usage("R", cpu=1.0, at=5 * SECOND, start=7)
    assert Usage("R", cpu=4.0, at=7 * SECOND, start=7).share_since(before) == 1.5
    assert Usage("R", cpu=0.5, at=7 * SECOND, start=7).share_since(before) == 0.0
    assert Usage("R", cpu=4.0, at=7 * SECOND, start=8).share_since(before) is None  # another one
    assert before.share_since(before) is None and before.share_since(None) is None


def test_a_sign_of_life_outside_of_its_life_is_of_another_process():
    ticks = os.sysconf("SC_CLK_TCK")
    awake = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    start = awake // SECOND * ticks - 10 * ticks  # started ten seconds ago
    now = time.monotonic_ns()
    one = Usage("S", at=now, start=start)
    assert one.unless_begun_after(0) is one and one.unless_begun_after(now - 5 * SECOND) is one
    assert one.unless_begun_after(now + 60 * SECOND) == Usage("")  # of a clock before a boot
    assert one.unless_begun_after(now - 60 * SECOND) == Usage("")


def test_handlers_are_seen():
    number = signal.SIGUSR2
    before = signal.signal(number, lambda *_: None)
    try:
        assert processes.catches(os.getpid(), number)
        signal.signal(number, signal.SIG_IGN)
        assert not processes.catches(os.getpid(), number)
    finally:
        signal.signal(number, before)


def test_the_thread_that_lets_one_signal_through_is_told_from_the_others():
    number, ready, done = signal.SIGRTMIN + 7, threading.Event(), threading.Event()
    found = []

    def listen():
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {number})
        found.append(threading.get_native_id())
        ready.set()
        done.wait(60)

    assert processes.thread_for(os.getpid(), number) == 0
    thread = threading.Thread(target=listen)
    thread.start()
    try:
        assert ready.wait(60)
        assert processes.thread_for(os.getpid(), number) == found[0]
        assert processes.thread_for(os.getpid(), number + 1) == 0
    finally:
        done.set()
        thread.join()


def test_the_place_is_this_host_and_this_numbering_of_processes():
    assert processes.place() == f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    assert len(processes.boot_id()) == 36 and processes.boot_id() == processes.boot_id()
    with open("/proc/self/cgroup", encoding="ascii") as file:
        assert processes.control_group(os.getpid()) == file.read()
