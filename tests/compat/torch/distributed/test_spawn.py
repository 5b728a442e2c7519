"""``torch.multiprocessing.spawn``: processes are started, awaited, and ended, whatever they do."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import numpy as np
import pytest

import disttrain as dt
from disttrain.compat.torch.distributed import spawn as mp
from disttrain.data import DataLoader
from disttrain.errors import ConfigError


def quit_at_once(index):
    os._exit(0)


def mark(index, folder):
    open(os.path.join(folder, str(index)), "w").close()


def test_all_functions_run(tmp_path):
    assert mp.spawn(mark, (str(tmp_path),), nprocs=3) is None
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]


def test_the_last_may_end_between_two_rounds():
    """What has been seen to end is not waited for again, nor is nothing waited for for ever."""
    for _ in range(10):
        context = mp.spawn(quit_at_once, nprocs=3, join=False)
        for process in context.processes:
            process.join()
        while not context.join():
            pass
        assert context.join() and context.join(0)
        assert [p.exitcode for p in context.processes] == [0, 0, 0]


def test_join_tells_what_still_runs():
    reader, writer = os.pipe()

    def wait_for_the_pipe(index):
        if index == 1:
            os.read(reader, 1)

    context = mp.spawn(wait_for_the_pipe, nprocs=2, join=False)
    assert not context.join()  # the first has ended, or neither has
    assert not context.join(0)
    os.write(writer, b"1")
    while not context.join():
        pass
    os.close(reader), os.close(writer)


def test_what_a_process_leaves_running_keeps_nobody_waiting(tmp_path):
    """A grandchild holds copies of all descriptors; the sentinel of multiprocessing stays open."""

    def leave_one(index):
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        (tmp_path / "left").write_text(str(pid))
        os._exit(index)

    try:
        mp.spawn(leave_one, nprocs=1)
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


def test_an_exception_of_any_length_arrives():
    def fail(index):
        raise ValueError("x" * 300_000 + "the end")

    with pytest.raises(mp.ProcessRaisedException, match="the end") as raised:
        mp.spawn(fail, nprocs=2)
    assert "Process 0 terminated" in str(raised.value) or raised.value.error_index == 1


def test_an_exception_beside_a_living_thread_is_told_at_once():
    def fail(index):
        threading.Thread(target=time.sleep, args=(600,)).start()
        raise ValueError("beside a thread")

    with pytest.raises(mp.ProcessRaisedException, match="beside a thread"):
        mp.spawn(fail, nprocs=2)


def test_a_failure_ends_the_others():
    def fail_or_wait(index):
        if index == 1:
            raise ValueError("one of three")
        signal.pause()

    context = mp.spawn(fail_or_wait, nprocs=3, join=False)
    with pytest.raises(mp.ProcessRaisedException, match="one of three") as raised:
        while not context.join():
            pass
    assert raised.value.error_index == 1 and raised.value.pid == context.pids()[1]
    assert not any(p.is_alive() for p in context.processes)
    assert context.join()


def test_one_that_ignores_the_request_to_end_is_killed():
    def stubborn(index):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while index == 0:
            time.sleep(1)
        os._exit(3)

    context = mp.spawn(stubborn, nprocs=2, join=False)
    with pytest.raises(mp.ProcessExitedException, match="process 1 terminated with exit code 3"):
        while not context.join(grace_period=0.2):
            pass
    assert context.processes[0].exitcode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 1, "signal 35")]
)
def test_a_signal_is_named(number, name):
    with pytest.raises(mp.ProcessExitedException, match=f"with signal {name}") as raised:
        mp.spawn(lambda index: os.kill(os.getpid(), number), nprocs=1)
    assert raised.value.exit_code == -number and raised.value.signal_name == name


def test_what_a_process_forks_speaks_for_itself_alone(capfd):
    def fork_one_that_fails(index):
        pid = os.fork()
        if pid == 0:
            raise ValueError("of the grandchild")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1

    mp.spawn(fork_one_that_fails, nprocs=2)
    assert capfd.readouterr().err.count("ValueError: of the grandchild") == 2


def test_processes_outlive_the_thread_that_started_them(tmp_path):
    reader, writer = os.pipe()

    def wait_for_the_pipe(index):
        os.read(reader, 1)

    started = []
    thread = threading.Thread(
        target=lambda: started.append(mp.spawn(wait_for_the_pipe, nprocs=1, join=False))
    )
    thread.start()
    thread.join()
    assert not started[0].join(0.3)
    os.write(writer, b"1")
    assert started[0].join()
    os.close(reader), os.close(writer)


def test_processes_end_with_their_starter():
    reader, writer = os.pipe()
    starter = os.fork()
    if starter == 0:
        os.close(reader)
        context = mp.spawn(lambda index: time.sleep(60), nprocs=3, join=False)
        os.write(writer, " ".join(map(str, context.pids())).encode() + b"\n")
        time.sleep(60)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert len(pipe.readline().split()) == 3
        os.kill(starter, signal.SIGKILL)
        os.waitpid(starter, 0)
        assert pipe.read() == b""  # comes when the last holder of the other end is gone


def test_a_process_that_somebody_else_has_collected():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # then the kernel does it
    try:
        context = mp.spawn(quit_at_once, nprocs=2, join=False)
        with pytest.raises(mp.ProcessExitedException, match="exit code None"):
            while not context.join():
                pass
    finally:
        signal.signal(signal.SIGCHLD, before)


def load_for_ever(index):
    loader = DataLoader(list(range(100)), 10, num_workers=1)
    while True:
        assert sum(batch.sum() for batch in loader) == 4950


@pytest.mark.parametrize("seed", range(8))
def test_a_kill_at_any_moment_leaves_nothing(seed, tmp_path):
    """Of three ranks with a worker each, or of their starter."""
    draw = random.Random(seed)
    (tmp_path / "err").touch()
    reader, writer = os.pipe()
    starter = os.fork()
    if starter == 0:
        os.dup2(os.open(tmp_path / "err", os.O_WRONLY), 2)
        context = mp.spawn(load_for_ever, nprocs=3, join=False)
        os.write(writer, " ".join(map(str, context.pids())).encode() + b"\n")
        try:
            while not context.join():
                pass
        except mp.ProcessExitedException as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        ranks = [int(word) for word in pipe.readline().split()]
        time.sleep(draw.uniform(0.0, 1.0))
        victim = draw.choice([starter, *ranks])
        os.kill(victim, signal.SIGKILL)
        os.waitpid(starter, 0)
        told = pipe.read().decode()  # ends when the last holder of the other end is gone
    assert told == ("" if victim == starter else
                    f"process {ranks.index(victim)} terminated with signal SIGKILL")  # fmt: skip


def test_processes_begin_with_the_settings_of_the_start(tmp_path):
    """... unless they are forked by name; the starter keeps its own."""

    def look(index, folder):
        numbers = (dt.rand(2).tolist(), np.random.rand())
        told = (dt.is_grad_enabled(), str(dt.get_default_dtype()), *map(str, numbers))
        (folder / str(index)).write_text(repr(told))

    folders = {}
    dt.manual_seed(3)
    np.random.seed(3)
    expected = (str(dt.rand(2, dtype=dt.float64).tolist()), str(np.random.rand()))
    for method in ("spawn", "fork"):
        dt.manual_seed(3)
        np.random.seed(3)
        dt.set_default_dtype(dt.float64)
        try:
            with dt.no_grad():
                (tmp_path / method).mkdir()
                mp.start_processes(look, (tmp_path / method,), 2, start_method=method)
                assert not dt.is_grad_enabled() and dt.get_default_dtype() is dt.float64
        finally:
            dt.set_default_dtype(dt.float32)
        folders[method] = [eval((tmp_path / method / str(i)).read_text()) for i in (0, 1)]
    assert folders["fork"] == [(False, "disttrain.float64", *expected)] * 2
    (first, second) = folders["spawn"]
    assert first[:2] == second[:2] == (True, "disttrain.float32")
    assert len({first[2], second[2], expected[0]}) == len({first[3], second[3], expected[1]}) == 3


def test_arguments_are_checked():
    with pytest.raises(ConfigError, match="nprocs=0; 1 or more"):
        mp.spawn(quit_at_once, nprocs=0)
    with pytest.raises(ConfigError, match="start_method='thread'"):
        mp.spawn(quit_at_once, start_method="thread")
