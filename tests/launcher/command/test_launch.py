"""launch(): results by rank, the first failure as the error, nothing left of the caller's."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from disttrain.errors import LaunchError
from disttrain_launcher import launch
from disttrain_launcher.worker import main


def test_results_come_back_by_rank():
    def body(scale):
        rank = int(os.environ["RANK"])
        return rank * scale, os.environ["WORLD_SIZE"]

    assert launch(body, 3, args=(10,)) == [(0, "3"), (10, "3"), (20, "3")]


def test_large_results_come_back_whole():
    got = launch(lambda: np.full(1_000_000, int(os.environ["RANK"])), 2)
    assert [int(a.sum()) for a in got] == [0, 1_000_000]


def test_a_rank_that_has_failed_and_cannot_end_is_ended(monkeypatch, capfd):
    monkeypatch.setattr(main, "FAREWELL", 0.1)
    monkeypatch.setattr(main, "_end_within", lambda *args: None)  # no memory for a thread

    def body():
        if os.environ["RANK"] == "1":
            atexit.register(time.sleep, 60)
            raise MemoryError("nothing is left")

    with pytest.raises(LaunchError, match="rank 1 failed: MemoryError: nothing is left"):
        launch(body, 2, min_ranks=1)
    assert "rank 1 has failed and does not end; it is killed" in capfd.readouterr().err


def test_an_exception_is_told_with_its_traceback():
    def broken():
        if os.environ["RANK"] == "1":
            raise ValueError("boom")
        time.sleep(60)

    with pytest.raises(LaunchError) as told:
        launch(broken, 2)
    text = str(told.value)
    assert "rank 1 failed: ValueError: boom" in text
    assert 'raise ValueError("boom")' in text and "also rank 0" in text


@pytest.mark.parametrize("death, cause", [(9, "killed by SIGKILL"), (11, "killed by SIGSEGV")])
def test_a_death_is_told(death, cause):
    def dying():
        if os.environ["RANK"] == "0":
            signal.signal(death, signal.SIG_DFL) if death != 9 else None
            os.kill(os.getpid(), death)
        time.sleep(60)

    with pytest.raises(LaunchError, match=f"rank 0 failed: {cause}"):
        launch(dying, 2)


def test_a_killed_agent_keeps_nobody_waiting(tmp_path):
    """... though a process that a rank has forked has copies of all descriptors."""

    def body():
        if os.fork() == 0:
            (tmp_path / "draft").write_text(str(os.getpid()))
            (tmp_path / "draft").rename(tmp_path / "left")
            time.sleep(60)
            os._exit(0)
        while not (tmp_path / "left").exists():
            time.sleep(0.005)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    try:
        with pytest.raises(LaunchError, match="the agent process died"):
            launch(body, 1)
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


def test_a_rank_that_vanishes_has_no_result():
    def vanish():
        if os.environ["RANK"] == "1":
            os._exit(0)

    with pytest.raises(LaunchError, match=r"ranks \[1\] have ended with exit code 0, but not by"):
        launch(vanish, 2)


def test_a_process_that_a_rank_forks_has_no_say():
    def fork_two():
        for end in ("raise", "return"):
            pid = os.fork()
            if pid == 0:
                if end == "raise":
                    raise ValueError("of the child")
                return "the child's"
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (end == "raise")
        return "the rank's"

    assert launch(fork_two, 2) == ["the rank's"] * 2


def test_a_result_that_cannot_be_pickled_is_told():
    with pytest.raises(LaunchError, match=r"(?i)pickle"):
        launch(lambda: lambda: None, 1)


def test_wrong_numbers_of_ranks_are_refused():
    for wrong in (0, -1, "2", 1.5):
        with pytest.raises(LaunchError, match="at least 1"):
            launch(print, wrong)


def test_ranks_leave_the_callers_temporary_files_alone():
    with tempfile.TemporaryDirectory() as place:
        Path(place, "file").write_text("mine")
        launch(lambda: None, 2)
        assert Path(place, "file").read_text() == "mine"


def test_exit_handlers_of_a_rank_run_in_it():
    def body(place):
        import atexit
        import weakref

        class Thing:
            pass

        keep = Thing()
        atexit.register(Path(place, "atexit").write_text, "ran")
        weakref.finalize(keep, Path(place, "finalize").write_text, "ran")
        globals()["_kept"] = keep

    with tempfile.TemporaryDirectory() as place:
        launch(body, 1, args=(place,))
        assert sorted(os.listdir(place)) == ["atexit", "finalize"]


def test_ranks_can_be_launched_again_and_after_a_failure():
    for _ in range(3):
        with pytest.raises(LaunchError):
            launch(lambda: 1 / 0, 2)
        assert launch(os.getppid, 2)[0] != os.getpid()


def test_interrupting_the_caller_ends_the_ranks(tmp_path):
    program = (
        "import os, time\nfrom pathlib import Path\nfrom disttrain import launch\n"
        "def body():\n    Path('up' + os.environ['RANK']).write_text(str(os.getpid()))\n"
        "    time.sleep(60)\nlaunch(body, 2)\n"
    )
    (tmp_path / "program.py").write_text(program)
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, env=env, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may ignore it
    )  # fmt: skip
    ups = [tmp_path / "up0", tmp_path / "up1"]
    while not all(up.exists() and up.read_text() for up in ups):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in err
    for up in ups:
        assert not Path("/proc", up.read_text()).exists()


def test_files_of_the_caller_are_written_once(tmp_path):
    with open(tmp_path / "log", "w") as log:
        log.write("mine\n")
        launch(lambda: log.write("a rank's\n") and None, 2)
        log.write("mine again\n")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == ["mine", "a rank's", "a rank's", "mine again"]


def test_what_ranks_write_goes_where_the_callers_text_goes():
    """... as into the cell of a notebook, which is no descriptor."""
    out, err = io.StringIO(), io.StringIO()

    def body():
        print("on", os.environ["RANK"], "é")
        os.write(2, b"raw\n")

    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        launch(body, 2)
    assert sorted(out.getvalue().splitlines()) == ["[rank 0] on 0 é", "[rank 1] on 1 é"]
    assert sorted(err.getvalue().splitlines()) == ["[rank 0] raw", "[rank 1] raw"]
