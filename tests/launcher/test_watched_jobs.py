"""Jobs as others see them: found while they run, their stacks, stragglers, what they leave behind
in the log directory, also where everybody is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from disttrain.cli import main, top
from disttrain.errors import ConfigError
from disttrain.watch import running, summary, trace
from disttrain.watch.reading import opened, read_all, read_rank
from disttrain_launcher.node.black_box import Watching
from disttrain_launcher.plan.job import Plan
from support.dtrun import Job, dtrun, until

TWO = ("--nproc-per-node", "2")
TRAIN = """
import os, sys, time
import disttrain as dt
import disttrain.distributed as dist
from disttrain import metrics
dist.init_process_group()
rank, model = dist.get_rank(), dt.nn.Linear(2, 2)
optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
for i in range(int(sys.argv[1])):
    time.sleep(0.1 if rank == 1 else 0.01)
    dist.all_reduce(dt.zeros(8))
    optimizer.step()
open('ready%d' % rank, 'w').close()
"""
STUCK = (
    TRAIN
    + """
import ctypes
def waits_in_c():
    # holds the interpreter's lock: nothing in Python can answer
    ctypes.PyDLL(None).sleep(60)
    raise AssertionError("a signal has ended it")
if rank == 1:
    waits_in_c()
else:
    dist.barrier()
"""
)

HANGS = """
import time
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
dist.all_reduce(dt.ones(3))
while dist.get_rank() == 1:
    time.sleep(0.1)
dist.barrier()
"""


def test_a_hang_is_told_with_where_each_rank_stands_and_so_is_who_interrupts_it(tmp_path):
    job = Job(tmp_path, HANGS, "--nproc-per-node", "3")
    told = []
    while not told or "disttrain stacks" not in told[-1]:
        told.append(job.process.stderr.readline())
        assert told[-1], told
    os.kill(job.process.pid, signal.SIGINT)
    ended = job.wait()
    for text in ("".join(told), ended.err):
        waits = r"rank {}: waits \d+\.\d s for rank 1 in barrier\(\) at .*script.py:8 .*"
        for rank in (0, 2):
            assert re.search(waits.format(rank) + r"\(operation 2 of group world\)", text), text
        last = r"rank 1: computes .* since all_reduce\(float32\[3\], op=SUM\) at .*script.py:5 .*"
        assert re.search(last + r"\(operation 1 of group world\)", text), text
        assert re.search(r"next, while it runs: `disttrain stacks \w+` shows", text)
    assert "all other ranks wait for rank 1, for 10 s now" in "".join(told)
    assert "interrupted while ranks waited:" in ended.err and ended.code == 130


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """This test looks for jobs where the job below says that it is."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(top, "GAP", 0.05)
    monkeypatch.setattr(
        running, "directories", lambda: [str(tmp_path / f"disttrain-{os.getuid()}")]
    )


def test_a_job_is_seen_while_it_runs_and_after_everybody_was_killed(tmp_path, mine, capsys):
    flags = (*TWO, "--log-dir", "logs", "--rdzv-id", "exp")
    job = Job(tmp_path, STUCK, *flags, args=("12",), env={"XDG_RUNTIME_DIR": ""})
    job.wait_for("ready0", "ready1")
    assert main(["jobs"]) == 0
    assert "exp" in capsys.readouterr().out
    box = running.find("exp").open_box()
    until(lambda: read_rank(box, 0).words.waits_since, "rank 0 to wait")
    box.close()
    assert main(["top", "exp", "--once", "--sort", "lateness"]) == 0
    shown = capsys.readouterr().out
    first, second = shown.splitlines()[-2:]  # the later one comes first
    assert first.split()[0] == "1" and "sleeps" in first and " 12 " in first
    assert "waits" in second and "for rank 1 in barrier() at" in second
    assert main(["top", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["ranks"]
    assert [row["step"] for row in rows] == [12, 12] and rows[1]["late_ms"] > rows[0]["late_ms"]
    assert main(["stacks", "exp"]) == 0
    stacks = capsys.readouterr().out
    rank0, rank1 = stacks.split("rank 1 (pid")
    assert "in barrier" in rank0 and "in waits_in_c" in rank1 and "in <module>" in rank1
    assert "launcher" not in stacks and "no answer within" not in stacks
    assert main(["stacks", "exp", "--rank", "1"]) == 0  # they go on: it answers again
    assert "waits_in_c" in capsys.readouterr().out
    os.kill(running.find("exp").pid, signal.SIGKILL)  # the agent, and with it all ranks
    job.wait()
    job.all_gone()
    assert running.jobs() == [] and not os.path.exists(running.directories()[0])
    assert main(["blackbox", "logs" if os.path.exists("logs") else str(tmp_path / "logs")]) == 0
    told = capsys.readouterr().out
    assert ("rank 0" in told and "waits 0." in told) or "waits " in told
    assert "for rank 1 in barrier() at" in told and "under way" in told
    names = [e["name"] for e in trace.events(str(tmp_path / "logs/attempt_0/trace.json"))]
    assert names.count("all_reduce") > 10 and "step 12" in names


# Each rank waits in another way, and says what came of it. Forks are warned of where there are
# threads (Python 3.12 and later).
WAITS = """
import ctypes, os, threading, time, warnings
warnings.simplefilter("error")
import disttrain.distributed as dist
dist.init_process_group()
rank, libc, ends = dist.get_rank(), ctypes.CDLL(None), 4.0
child = os.fork()
if not child:
    os._exit(len(os.listdir("/proc/self/task")))
told = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), threading.active_count()]
open(f"ready{rank}", "w").close()
began = time.monotonic()
def computes():
    while time.monotonic() - began < ends:
        sum(range(100))
    return 0
told.append([
    lambda: libc.sleep(4), lambda: libc.poll(None, 0, 4000), lambda: ctypes.PyDLL(None).sleep(4),
    computes,
][rank]())
print(told, time.monotonic() - began >= ends - 0.01, flush=True)
dist.destroy_process_group()
"""


def test_asking_for_stacks_disturbs_nothing(tmp_path, mine, capsys):
    flags = "--nproc-per-node", "4", "--rdzv-id", "waits"
    job = Job(tmp_path, WAITS, *flags, env={"XDG_RUNTIME_DIR": ""})
    job.wait_for(*(f"ready{rank}" for rank in range(4)))
    for _ in range(2):
        assert main(["stacks", "waits"]) == 0
        parts = capsys.readouterr().out.split("(pid ")[1:]
        assert len(parts) == 4
        assert all(part.count("in <module>") == 1 for part in parts), parts
        assert "in computes" in parts[3] and "_serve" not in "".join(parts)
    ended = job.wait()
    assert ended.code == 0, ended.err
    assert ended.out.count("[1, 1, 0] True") == 4, ended.out


def test_a_straggler_is_named_and_the_log_directory_tells_all(tmp_path):
    flags = (*TWO, "--log-dir", "logs", "--straggler-report")
    ended = dtrun(tmp_path, TRAIN, *flags, args=("50",))
    assert ended.code == 0
    [line] = [x for x in ended.err.splitlines() if "is a straggler" in x]
    assert line.startswith("dtrun: rank 1 is a straggler: ") and "times slower" in line
    assert "all_reduce(float32[8], op=SUM) at" in line and "script.py:11" in line
    assert "stragglers:" in ended.err and "SLOWEST IN" in ended.err
    box = opened(*summary.find(str(tmp_path / "logs")))
    ranks = read_all(box)
    assert [r.words.ended for r in ranks] == [1, 1] and [r.words.step for r in ranks] == [50, 50]
    box.close()
    text = (tmp_path / "logs/attempt_0/trace.json").read_text()
    events = json.loads(text)
    for rank in range(2):
        own = [e for e in events if e["pid"] == rank and e["name"] == "all_reduce"]
        assert [e["args"]["seq"] for e in own] == list(range(1, 51))
    report = json.loads((tmp_path / "logs/report.json").read_text())
    assert report["exitcode"] == 0 and [r["step"] for r in report["ranks"]] == [50, 50]


DIES = """
import os, signal
import disttrain as dt
import disttrain.distributed as dist
dist.init_process_group()
for i in range(5):
    dist.all_reduce(dt.zeros(3))
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""


def test_what_a_killed_rank_did_stands_under_the_headline(tmp_path):
    flags = (*TWO, "--start-method", "spawn", "--log-dir", "logs")
    ended = dtrun(tmp_path, DIES, *flags)
    assert ended.code == 137
    head = ended.err[ended.err.index("Root Cause") :]
    assert "rank      : 1" in head and "did last  : all_reduce(float32[3], op=SUM) at" in head
    report = json.loads((tmp_path / "logs/report.json").read_text())["root_cause"]
    assert report["last"] and "script.py:7" in report["last"][-1]
    assert report["host"] == os.uname().nodename and abs(report["time_ns"] / 1e9 - time.time()) < 30


def test_a_log_directory_that_cannot_be_written_costs_the_box_its_file_alone(tmp_path, capfd):
    (tmp_path / "attempt_0").write_text("in the way")
    plan = Plan(("a.py",), 2, log_dir=str(tmp_path))
    watching = Watching(plan, plan.alone())
    assert "the black box is kept in memory alone" in capfd.readouterr().err
    assert watching.path == "" and watching.box.num_ranks == 2
    watching.look(0.0)
    watching.close()


def test_long_and_odd_command_lines_are_told_on_one_line(tmp_path, mine):
    words = ["a.py", "two\nlines", "\x1b[31mred", os.fsdecode(b"\xff"), *map(str, range(50_000))]
    plan = Plan(tuple(words), 2, log_dir=str(tmp_path))
    watching = Watching(plan, plan.alone())
    watching.announce()
    (job,) = running.jobs()
    assert job.program.startswith("a.py two?lines ?[31mred \\xff 0 1 ") and len(job.program) <= 1000
    assert job.program.endswith("49999") and watching.box.about["program"] == job.program
    watching.close()


def test_jobs_that_are_gone_are_swept_and_names_are_explained(tmp_path, mine, capsys):
    path = running.announce(running.this_process("abc", "a.py", 3))
    other = running.announce(running.this_process("abd", "b.py", 3, num_ranks=2))
    assert oct(os.stat(os.path.dirname(path)).st_mode)[-3:] == "700"
    found = running.jobs()  # both are this process, whose last file stands for both
    assert {j.job for j in found} == {"abc", "abd"} and running.find("abc").program == "a.py"
    with pytest.raises(ConfigError, match=r"may be any of 2: abc .*abd"):
        running.find("ab")
    with pytest.raises(ConfigError, match="several jobs run: abc"):
        running.find(None)
    told = json.loads(Path(other).read_text()) | {"start": 1}
    Path(other).write_text(json.dumps(told))
    assert [j.job for j in running.jobs()] == ["abc"] and not os.path.exists(other)
    assert running.find(None).job == "abc"
    Path(other).write_text(json.dumps(told | {"place": "another host"}))
    assert [j.job for j in running.jobs()] == ["abc"] and os.path.exists(other)
    os.unlink(other)
    running.withdraw(path)
    with pytest.raises(ConfigError, match="no job of yours runs here"):
        running.find(None)
    assert main(["top"]) == 2 and "no job of yours" in capsys.readouterr().err
    os.mkdir(running.directories()[0], 0o755)
    os.chmod(running.directories()[0], 0o755)
    with pytest.raises(ConfigError, match="of this user alone"):
        running.announce(running.this_process("abc", "a.py", 3))
