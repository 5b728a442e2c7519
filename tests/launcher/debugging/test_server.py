"""Ranks in the debugger, at real terminals: stepped, quit, killed, queued, attached to, stopped
while they run, looked at after they failed; and all clocks that stand meanwhile."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from support.dtrun import Job, below, dtrun, until
from support.ptys import Typist, disttrain, started

TWO = ("--nproc-per-node", "2")
NAMED = (*TWO, "--rdzv-id", "debugged")
PROMPT = r"\(Pdb rank {}\) $"
STOPS = """
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
def step(x):
    twice = x * 2
    return twice
value = 40
if rank == 1:
    breakpoint()
    value = step(value)
    print("value", value)
x = dt.ones(3) * (rank + 1)
dist.all_reduce(x)
print("sum", x.tolist())
"""


@pytest.fixture
def typists() -> Iterator[Callable[[Typist], Typist]]:
    known: list[Typist] = []

    def know(typist: Typist) -> Typist:
        known.append(typist)
        return typist

    yield know
    for typist in reversed(known):
        typist.close()


def at(rank: int) -> str:
    return PROMPT.format(rank)


def test_a_rank_is_stepped_through(tmp_path, typists):
    job = typists(started(tmp_path, STOPS, *TWO))
    job.expect(r"rank 1 \(pid \d+\) is in the debugger at .*train.py:10 in <module>")
    job.expect(r"-> breakpoint\(\)\n" + at(1))
    assert not job.is_as_before
    for words, answer in (("p value", "40"), ("n", "-> value = step"), ("s", "--Call--"),
                          ("n", "-> twice = x"), ("n", "-> return twice"), ("p twice", "80"),
                          ("where", r"train.py\(11\)<module>"), ("up", "-> value = step"),
                          ("!value = 7", ""), ("p value", "7"), ("down", "return twice"),
                          ("r", "--Return--"), ("p input('what? ')", r"\nwhat\? $")):  # fmt: skip
        job.line(words)
        job.expect(answer)
        if "input" not in words:
            job.expect(at(1))
    job.line("seen")
    job.expect("'seen'\n" + at(1))
    assert "launcher" not in job.said.partition("where")[2].partition("up")[0]
    job.line("c")
    job.expect("rank 1 goes on")
    assert job.ends() == 0
    assert "[rank 1] value 80" in job.said and "[rank 0] sum [3.0, 3.0, 3.0]" in job.said
    assert job.is_as_before


def test_stepping_ends_with_the_program(tmp_path, typists):
    job = typists(started(tmp_path, "breakpoint(1)\nz = 1\n", *TWO))
    for seen in ("-> breakpoint", "-> z = 1", "--Return--"):
        job.expect(seen)
        job.expect(at(1))
        job.line("n")
    job.expect("rank 1 has ended its program")
    assert job.ends() == 0


@pytest.mark.parametrize("closed", [(0, 1, 2), (0,), (1,)])
def test_a_program_without_standard_descriptors(tmp_path, typists, closed):
    script = f"import os\nfor fd in {closed}:\n    os.close(fd)\nbreakpoint(1)\nvalue = 40\n"
    job = typists(started(tmp_path, script + "open('ended', 'w').close()\n", *TWO))
    job.expect(at(1))
    job.line("n")
    job.expect("-> value = 40\n" + at(1))
    job.line("c")
    job.expect("rank 1 goes on")
    assert job.ends() == 0 and (tmp_path / "ended").exists()


def test_one_rank_speaks_after_its_debugger(tmp_path, typists):
    job = typists(started(tmp_path, "breakpoint()\nprint('later')\n"))
    job.expect(at(0))
    job.line("c")
    job.expect(r"(?s)rank 0 goes on\n.*later\n")
    assert job.ends() == 0


def test_breakpoints_hold_after_the_terminal_was_given_back(tmp_path, typists):
    more = "value = 40\nfor i in range(4):\n    dist.barrier()\n"
    more += "    if rank == 1 and i == 1:\n        breakpoint()\n    seen = i"
    loop = STOPS.replace("value = 40", more)
    loop = loop.replace("if rank == 1:\n    breakpoint()", "if rank == 1:")
    job = typists(started(tmp_path, loop, *TWO))
    job.expect(at(1))
    job.line("b 13")
    job.expect("Breakpoint 1 at .*:13\n" + at(1))
    for seen in (1, 2, 3):
        job.line("c")
        job.expect("-> seen = i\n" + at(1))
        job.line("p i")
        job.expect(f"{seen}\n" + at(1))
    job.line("cl 1")
    job.expect(at(1))
    job.line("c")
    assert job.ends() == 0


def test_outputs_of_others_wait_until_the_terminal_is_free(tmp_path, typists):
    script = STOPS.replace("value = 40", "import time\nvalue = 40\nif rank == 0:\n"
                           "    time.sleep(0.5)\n    print('from the other one')\n"
                           "    open('said', 'w').close()")  # fmt: skip
    job = typists(started(tmp_path, script, *TWO))
    job.expect(at(1))
    until(lambda: (tmp_path / "said").exists(), "the other rank to speak")
    job.line("p value")
    job.expect("40\n" + at(1))
    assert "from the other one" not in job.said
    job.line("c")
    job.expect("from the other one")
    assert job.ends() == 0


@pytest.mark.parametrize("keys", ["q\n", "\x04", "exit\n"])
def test_quit_ends_the_job_and_says_so(tmp_path, typists, keys):
    job = typists(started(tmp_path, STOPS, *TWO))
    job.expect(at(1))
    job.type(keys)
    assert job.ends() == 1
    assert "cause     : rank 1 was ended by `quit` in the debugger" in job.said
    assert "BdbQuit" not in job.said
    assert job.is_as_before


def test_an_except_clause_does_not_swallow_quit(tmp_path, typists):
    script = STOPS.replace("    breakpoint()", "    try:\n        breakpoint()\n        value = 1\n"
                           "    except Exception:\n        print('swallowed')")  # fmt: skip
    job = typists(started(tmp_path, script, *TWO))
    job.expect(at(1))
    job.line("q")
    assert job.ends() == 1
    assert "swallowed" not in job.said


def test_ctrl_c_breaks_off_a_command_and_not_the_job(tmp_path, typists):
    job = typists(started(tmp_path, "import time\n" + STOPS, *TWO))
    job.expect(at(1))
    job.line("print('sl' + 'eeps', flush=True); time.sleep(60)")
    job.expect("sleeps")
    job.type("\x03")
    job.expect(r"KeyboardInterrupt[^$]*" + at(1))
    job.type("half a comm")
    job.expect("half a comm")
    time.sleep(0.5)  # until its line editor waits for keys
    job.type("\x03")
    job.expect(r"--KeyboardInterrupt--\n" + at(1))
    job.line("p value")
    job.expect("40\n" + at(1))
    job.line("c")
    assert job.ends() == 0


def test_ctrl_c_stops_a_program_that_was_told_to_go_on_to_the_next_line(tmp_path, typists):
    """It waits for the other rank in a collective: the user's frame comes up, not ours."""
    script = """
import time, os
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
x = dt.ones(3)
if dist.get_rank() == 0:
    breakpoint()
    dist.all_reduce(x)
    print("met")
else:
    while not os.path.exists("go"):
        time.sleep(0.05)
    dist.all_reduce(x)
"""
    job = typists(started(tmp_path, script, *TWO))
    job.expect(at(0))
    job.line("n")
    job.expect("-> dist.all_reduce")
    job.line("n")
    time.sleep(0.5)
    job.type("\x03")
    job.expect(r"-> dist.all_reduce\(x\)\n(\^C)?" + at(0))  # a busy terminal echoes it late
    job.line("p x.tolist()")
    job.expect(r"\[1.0, 1.0, 1.0\]\n" + at(0))
    (tmp_path / "go").touch()
    job.line("n")
    job.expect(r"-> print\(.met.\)\n" + at(0))
    job.line("c")
    assert job.ends() == 0


def test_a_rank_that_is_killed_in_the_debugger_leaves_the_terminal_as_it_was(tmp_path, typists):
    job = typists(started(tmp_path, STOPS, *TWO))
    pid = int(job.expect(r"rank 1 \(pid (\d+)\)")[1])
    job.expect(at(1))
    os.kill(pid, signal.SIGKILL)
    job.expect("rank 1 has ended")
    assert job.ends() == 137
    assert job.is_as_before


def test_the_terminal_is_mended_when_the_launcher_is_killed(tmp_path, typists):
    job = typists(started(tmp_path, STOPS, *TWO))
    job.expect(at(1))
    assert not job.is_as_before
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: job.is_as_before, "the terminal to be as it was")
    job.ends()


def test_another_rank_that_dies_does_not_take_the_debugger_away(tmp_path, typists):
    job = typists(started(tmp_path, STOPS, *TWO))
    job.expect(at(1))
    (warden,) = below(job.pid)
    (agent,) = below(warden)
    mine = int(re.findall(r"rank 1 \(pid (\d+)\)", job.said)[0])
    (other,) = [pid for pid in below(agent) if pid != mine]
    os.kill(other, signal.SIGKILL)
    time.sleep(1.5)  # much longer than others are given after a failure
    job.line("p value")
    job.expect("40\n" + at(1))
    job.line("c")
    assert job.ends() == 137
    assert "killed by signal SIGKILL" in job.said or "SIGKILL" in job.said


BOTH = """
import disttrain as dt, disttrain.distributed as dist, time, os
dist.init_process_group()
rank = dist.get_rank()
if rank == 1:
    while not os.path.exists("go"):
        time.sleep(0.02)
breakpoint()
mine = rank
dist.barrier()
"""


def test_two_ranks_come_one_after_the_other(tmp_path, typists):
    job = typists(started(tmp_path, BOTH, *TWO))
    job.expect(at(0))
    (tmp_path / "go").touch()
    job.expect(r"rank 1 \(pid \d+\) is in the debugger .*, too; it gets this terminal next")
    job.line("p rank")
    job.expect("0\n" + at(0))
    job.line("c")
    job.expect("rank 0 goes on")
    job.expect(at(1))
    job.line("p rank")
    job.expect("1\n" + at(1))
    job.line("c")
    assert job.ends() == 0


WAITS = """
import disttrain as dt, disttrain.distributed as dist, datetime
dist.init_process_group(timeout=datetime.timedelta(seconds=2))
rank = dist.get_rank()
x = dt.ones(3)
if rank == 1:
    breakpoint()
    x = x * 2
dist.all_reduce(x)
print("sum", x.tolist())
x = dt.ones(3)
if rank == 1 and dist.get_world_size() > 9:
    breakpoint()
dist.all_reduce(x)
"""


def test_deadlines_stand_still(tmp_path, typists):
    job = typists(started(tmp_path, WAITS, *TWO))
    job.expect(at(1))
    time.sleep(5)  # the deadline is 2 s
    job.line("p x.tolist()")
    job.expect(r"\[1.0, 1.0, 1.0\]\n" + at(1))
    job.line("c")
    assert job.ends() == 0
    assert "[rank 0] sum [3.0, 3.0, 3.0]" in job.said


def test_deadlines_count_again_afterwards(tmp_path, typists):
    script = WAITS.replace("    x = x * 2\n", "    import time; time.sleep(60)\n")
    job = typists(started(tmp_path, script, *TWO))
    job.expect(at(1))
    time.sleep(3)
    job.line("c")
    assert job.ends() == 1
    assert "WaitTimeout" in job.said or "timed out" in job.said or "deadline" in job.said


def test_another_terminal_attaches(tmp_path, typists):
    """The job has none of its own, as in a batch system."""
    job = Job(tmp_path, STOPS, *NAMED, env={"XDG_RUNTIME_DIR": str(tmp_path)})
    try:
        until(lambda: list(tmp_path.glob("disttrain/*.json")), "the job to be announced")
        time.sleep(0.5)
        other = typists(disttrain(tmp_path, "attach", "debugged", "0"))
        assert other.ends() == 2
        assert "rank 0 is not in the debugger (in it is 1)" in other.said
        one = typists(disttrain(tmp_path, "attach", "debugged", "1"))
        one.expect(at(1))
        two = typists(disttrain(tmp_path, "attach", "debugged", "1"))
        assert two.ends() == 2 and "has a terminal already" in two.said
        one.line("n")
        one.expect(at(1))
        one.type("\x1c")  # Ctrl-\
        one.expect("let go")
        assert one.ends() == 0 and one.is_as_before
        again = typists(disttrain(tmp_path, "attach", "debugged", "1"))
        again.expect("rank 1 .* is in the debugger")
        again.line("p value")
        again.expect("40\n" + at(1))
        os.kill(again.pid, signal.SIGKILL)  # a window that is closed
        until(lambda: again.is_as_before, "the terminal to be as it was")
        last = typists(disttrain(tmp_path, "attach", str(below_agent(job)), "1"))
        last.expect("rank 1 .* is in the debugger")
        last.line("c")
        last.expect("rank 1 goes on")
        assert last.ends() == 0
        ended = job.wait()
        assert ended.code == 0, ended.err
        assert "no terminal is free here" in ended.err
        assert "`disttrain attach debugged 1`" in ended.err
        job.all_gone()
    finally:
        job.process.kill()
        job.process.communicate()


def below_agent(job: Job) -> int:
    return job.launcher()["agent"]


def test_an_interrupt_of_the_launcher_ends_a_rank_in_the_debugger_too(tmp_path, typists):
    job = Job(tmp_path, STOPS, *NAMED, env={"XDG_RUNTIME_DIR": str(tmp_path)})
    try:
        until(lambda: list(tmp_path.glob("disttrain/*.json")), "the job to be announced")
        one = None
        for _ in range(50):
            one = typists(disttrain(tmp_path, "attach", "debugged", "1"))
            if one.expect(r"\(Pdb rank 1\) $|is not in the debugger")[0].startswith("("):
                break
        job.process.send_signal(signal.SIGINT)
        one.expect("rank 1 has ended")
        assert one.ends() == 0 and one.is_as_before
        assert job.wait().code == 130
        job.all_gone()
    finally:
        job.process.kill()
        job.process.communicate()


def test_nobody_comes(tmp_path):
    script = STOPS.replace("    breakpoint()", "    dist.breakpoint(1, timeout_s=1)")
    ended = dtrun(tmp_path, script, *TWO)
    assert ended.code == 1
    assert "nobody came to a terminal within 1 s" in ended.err
    assert "disttrain attach" in ended.err


RUNS = """
import os, sys, time, ctypes
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
def spins():
    turns = 0
    while not os.path.exists("go"):
        turns += 1
def sleeps():
    while not os.path.exists("go"):
        time.sleep(30)
def in_c():
    seconds = 30
    while not os.path.exists("go") and seconds:
        seconds = ctypes.CDLL(None).sleep(seconds)
if rank == 1:
    open("ready", "w").close()
    {what}()
dist.barrier()
print("met")
"""


@pytest.mark.parametrize("what", ["spins", "sleeps", "in_c"])
def test_a_running_rank_is_stopped(tmp_path, typists, what):
    job = Job(tmp_path, RUNS.replace("{what}", what), *NAMED,
              env={"XDG_RUNTIME_DIR": str(tmp_path)})  # fmt: skip
    try:
        job.wait_for("ready")
        one = typists(disttrain(tmp_path, "pdb", "debugged", "1"))
        one.expect(rf"rank 1 .* was stopped at .*script.py:\d+ in {what}")
        one.expect(rf"script.py\(\d+\){what}\(\)\n-> [^\n]+\n" + at(1))
        one.line("p rank")
        one.expect("1\n" + at(1))
        (tmp_path / "go").touch()
        one.line("c")
        one.expect("rank 1 goes on")
        one.ends()
        if what == "sleeps":
            return  # as long as it was told to, since Python begins a sleep again
        ended = job.wait()
        assert ended.code == 0, ended.err
        assert ended.out.count("met") == 2
    finally:
        job.process.terminate()
        job.process.communicate()


def test_a_rank_that_waits_for_another_is_stopped_in_the_users_frame(tmp_path, typists):
    job = Job(tmp_path, RUNS.replace("{what}", "spins"), *NAMED,
              env={"XDG_RUNTIME_DIR": str(tmp_path)})  # fmt: skip
    try:
        job.wait_for("ready")
        one = typists(disttrain(tmp_path, "pdb", "debugged", "0"))
        one.expect(r"-> dist.barrier\(\)\n" + at(0))
        one.line("n")
        (tmp_path / "go").touch()
        one.expect(r"-> print\(.met.\)\n" + at(0))
        one.line("q")
        one.expect("rank 0 was quit")
        one.ends()
        assert "ended by `quit` in the debugger" in job.wait().err
    finally:
        job.process.kill()
        job.process.communicate()


def test_wrong_ranks_and_jobs_are_refused(tmp_path, typists):
    job = Job(tmp_path, RUNS.replace("{what}", "spins"), *NAMED,
              env={"XDG_RUNTIME_DIR": str(tmp_path)})  # fmt: skip
    try:
        job.wait_for("ready")
        for words, answer in (
            (("pdb", "debugged", "7"), "rank 7 of job debugged does not run here, but 0 to 1 do"),
            (("pdb", "other", "0"), "no job 'other' of yours runs here"),
            (("attach", "debugged", "1"), r"rank 1 is not in the debugger \(no rank is\)"),
            (("pdb", "debugged", "one"), "invalid int value"),
            (("attach", "debugged"), "required"),
        ):
            one = typists(disttrain(tmp_path, *words))
            one.expect(answer)
            assert one.ends() == 2
    finally:
        job.process.terminate()
        job.process.communicate()


FAILS = """
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
def inner(a):
    secret = a + 1
    raise ValueError(f"bad {secret}")
if rank == 1 or {all}:
    inner(rank * 10)
dist.barrier()
"""


def test_a_rank_that_fails_is_looked_at(tmp_path, typists):
    job = typists(started(tmp_path, FAILS.replace("{all}", "False"), *TWO, "--pdb"))
    job.expect(r"rank 1 \(pid \d+\) has failed, and is in the debugger at .*train.py:7 in inner")
    job.expect(r"ValueError: bad 11")
    job.expect(r"-> raise ValueError.*\n" + at(1))
    job.line("p secret")
    job.expect("11\n" + at(1))
    job.line("where")
    where = job.expect(r"(?s)where\n(.*)" + at(1))[1]
    assert "disttrain_launcher" not in where and "/launcher/" not in where
    job.line("up")
    job.expect(r"-> inner\(rank \* 10\)\n" + at(1))
    job.line("q")
    assert job.ends() == 1
    assert "cause     : ValueError: bad 11" in job.said


def test_of_ranks_that_fail_alike_one_is_looked_at(tmp_path, typists):
    job = typists(started(tmp_path, FAILS.replace("{all}", "True"), *TWO, "--pdb"))
    rank = job.expect(r"\(Pdb rank (\d)\) ")[1]  # the other one may be announced behind it
    job.line("c")
    assert job.ends() == 1
    assert job.said.count("has failed, and is in the debugger") <= 2
    assert f"(Pdb rank {1 - int(rank)})" not in job.said


def test_a_failure_without_a_terminal_ends_as_ever_when_nobody_comes(tmp_path, typists):
    job = Job(tmp_path, FAILS.replace("{all}", "False"), *NAMED, "--pdb",
              env={"XDG_RUNTIME_DIR": str(tmp_path)})  # fmt: skip
    try:
        until(lambda: list(tmp_path.glob("disttrain/*.json")), "the job to be announced")
        one = None
        for _ in range(50):
            one = typists(disttrain(tmp_path, "attach", "debugged", "1"))
            try:
                one.expect(at(1))
                break
            except AssertionError:
                time.sleep(0.2)
        assert one is not None
        one.line("q")
        assert one.ends() == 0
        ended = job.wait()
        assert ended.code == 1 and "ValueError: bad 11" in ended.err
    finally:
        job.process.kill()
        job.process.communicate()


def test_python_s_own_variable_is_heard(tmp_path):
    ended = dtrun(tmp_path, STOPS, *TWO, env={"PYTHONBREAKPOINT": "0"})
    assert ended.code == 0
