"""dtrun as a user meets it: outputs, environments, failures of every kind, signals, restarts."""

from __future__ import annotations

import gzip
import json
import os
import signal

import pytest

from support.dtrun import Job, dtrun
from support.shm import names

TWO = ("--nproc-per-node", "2")
SLEEP = "import time\ntime.sleep(60)\n"


def test_ranks_run_the_script_and_outputs_are_prefixed(tmp_path):
    script = (
        "import os, sys\nprint('out', os.environ['RANK'], sys.argv[1:], __name__, flush=True)\n"
        "print('err', file=sys.stderr)\nimport helper"
    )
    (tmp_path / "helper.py").write_text("print('beside the script')")
    ended = dtrun(tmp_path, script, *TWO, args=("--lr", "0.1"))
    assert ended.code == 0
    assert sorted(ended.out.splitlines()) == [
        "[rank 0] beside the script",
        "[rank 0] out 0 ['--lr', '0.1'] __main__",
        "[rank 1] beside the script",
        "[rank 1] out 1 ['--lr', '0.1'] __main__",
    ]
    assert sorted(ended.err.splitlines()) == ["[rank 0] err", "[rank 1] err"]


def test_lines_of_ranks_never_mix(tmp_path):
    script = (
        "import os, sys\nr = os.environ['RANK']\n"
        "for i in range(200):\n"
        "    for part in ('a' * 700, r * 5000, 'z'):\n"
        "        sys.stdout.write(part)\n        sys.stdout.flush()\n"
        "    print()\nprint('no end', end='')"
    )
    ended = dtrun(tmp_path, script, *TWO)
    lines = ended.out.splitlines()
    whole = [f"[rank {r}] {'a' * 700}{str(r) * 5000}z" for r in (0, 1)]
    assert [lines.count(line) for line in whole] == [200, 200]
    assert sorted(set(lines) - set(whole)) == ["[rank 0] no end", "[rank 1] no end"]


CONTRACT = """
import json, os
names = '''RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME
ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT
TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE
OMP_NUM_THREADS DISTTRAIN_JOB_FD'''.split()
from disttrain.comm.job.segment import Segment
from disttrain.comm.job.worker_env import read_worker_env
me = read_worker_env()
segment = Segment.attach(os.dup(me.job_fd))
assert (segment.num_ranks, segment.slot(me.rank).pid) == (2, os.getpid())
with open('env' + os.environ['RANK'], 'w') as f:
    json.dump({n: os.environ[n] for n in names}, f)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_environment_contract(tmp_path, method):
    flags = (
        "--start-method",
        method,
        "--log-dir",
        "logs",
        "--role",
        "trainer",
        "--rdzv-id",
        "job7",
    )
    ended = dtrun(tmp_path, CONTRACT, *TWO, *flags)
    assert (ended.code, ended.err) == (0, "")
    env = json.loads((tmp_path / "env1").read_text())
    assert int(env.pop("MASTER_PORT")) > 1023 and int(env.pop("DISTTRAIN_JOB_FD")) > 2
    assert env == {
        "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "trainer", "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "job7",
        "TORCHELASTIC_USE_AGENT_STORE": "False", "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_ERROR_FILE": "logs/attempt_0/1/error.json",
    }  # fmt: skip


def test_all_starts_of_a_job_have_one_name_that_no_other_job_has(tmp_path):
    script = (
        "import os\nprint(os.environ['DISTTRAIN_JOB_ID'], os.environ['DISTTRAIN_GENERATION'])\n"
        "assert os.environ['TORCHELASTIC_RESTART_COUNT'] == '1'"
    )
    flags = ("--max-restarts", "1", "--rdzv-id", "same")
    jobs = []
    for name in "ab":
        (tmp_path / name).mkdir()
        lines = dtrun(tmp_path / name, script, *flags).out.splitlines()
        told = [line.split()[-2:] for line in lines]
        assert [generation for _, generation in told] == ["1", "2"]
        assert told[0][0] == told[1][0]
        jobs.append(told[0][0])
    assert jobs[0] != jobs[1]


def test_the_master_port_is_free_for_the_script(tmp_path):
    script = (
        "import os, socket\nif os.environ['RANK'] == '0':\n"
        "    s = socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n"
        "    print(s.getsockname()[1] == int(os.environ['MASTER_PORT']))"
    )
    assert dtrun(tmp_path, script, *TWO).out == "[rank 0] True\n"


def test_a_module_and_an_executable(tmp_path):
    script = "import sys\nprint(__name__, sys.argv[1:])"
    assert dtrun(tmp_path, script, "-m", args=("x",)).out == "__main__ ['x']\n"
    job = Job(tmp_path, "", *TWO, "--no-python", "sh", "-c", "echo $RANK of $WORLD_SIZE")
    assert sorted(job.wait().out.splitlines()) == ["[rank 0] 0 of 2", "[rank 1] 1 of 2"]


def test_ranks_draw_different_random_numbers(tmp_path):
    script = "import numpy, random\nprint(numpy.random.rand(), random.random())"
    lines = dtrun(tmp_path, script, *TWO).out.splitlines()
    assert len({line.split("] ")[1] for line in lines}) == 2


# --- failures ------------------------------------------------------------------------------------

FAIL = (
    "import os, time, ctypes, signal, sys\nif os.environ['RANK'] == '1':\n    {}\ntime.sleep(60)\n"
)
DEATHS = {
    "raise": ("raise ValueError('boom')", 1, "ValueError: boom"),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", 137, "killed by SIGKILL"),
    "abort": ("os.abort()", 134, "killed by SIGABRT"),
    "segfault": ("ctypes.string_at(0)", 139, "killed by SIGSEGV"),
    "_exit": ("os._exit(3)", 3, "exit code 3"),
    "exit": ("sys.exit(5)", 5, "exit code 5"),
    "syntax": ("exit((", 1, "SyntaxError"),
}


@pytest.mark.parametrize("death", DEATHS)
def test_the_first_failure_is_the_headline_and_the_exit_code(tmp_path, death):
    line, code, cause = DEATHS[death]
    script = FAIL.format(line)
    if death == "syntax":
        script = "x = ((\n"
    ended = dtrun(tmp_path, script, *TWO)
    assert ended.code == code
    headline = ended.err[ended.err.index("Root Cause (first observed failure)") :]
    assert f"cause     : {cause}" in headline
    if death != "syntax":
        assert "rank      : 1 (local_rank: 1)" in headline
        assert "rank 0: stopped by the launcher" in headline
    if death == "raise":
        assert f'File "{tmp_path}/script.py", line 3, in <module>' in headline.replace(
            'File "script.py"', f'File "{tmp_path}/script.py"'
        )
        assert "launcher/worker/main.py" not in ended.err and "runpy" not in ended.err


def test_a_spawned_rank_fails_alike(tmp_path):
    ended = dtrun(tmp_path, FAIL.format("raise KeyError('x')"), *TWO, "--start-method", "spawn")
    assert ended.code == 1 and "cause     : KeyError: 'x'" in ended.err


COLLECTIVE = """
import os, signal, sys
import numpy as np
from disttrain import context
from disttrain.comm.transports import shm
from disttrain.comm.group.group import ProcessGroup
me = context.current()
group = ProcessGroup(shm.connect(me.slots["comm.job"], me.rank, me.world_size))
x = np.ones(4, np.float32)
for step in range(10_000_000):
    if me.rank == 1 and step == 50:
        {}
    group.all_reduce(x)
"""


@pytest.mark.parametrize("death", ["raise", "kill"])
def test_peers_in_a_collective_learn_of_a_death(tmp_path, death):
    line, code, cause = DEATHS[death]
    before = names()
    ended = dtrun(tmp_path, COLLECTIVE.format(line), "--nproc-per-node", "3")
    assert ended.code == code
    headline = ended.err[ended.err.index("Root Cause") :]
    assert f"cause     : {cause}" in headline
    for rank in (0, 2):
        assert f"rank {rank}: PeerFailed" in headline
        assert f"rank 1 failed: {cause}" in headline
    assert names() == before


def test_peers_in_a_collective_learn_of_one_that_vanishes(tmp_path):
    ended = dtrun(tmp_path, COLLECTIVE.format("os._exit(0)"), "--nproc-per-node", "3")
    headline = ended.err[ended.err.index("Root Cause") :]
    assert ended.code == 1 and "rank      : 1 " in headline
    assert "cause     : ended with exit code 0 in the middle of its program" in headline
    for rank in (0, 2):
        assert f"rank {rank}: PeerFailed" in headline and "rank 1 has ended" in headline


THREAD = "import threading; threading.Thread(target=time.sleep, args=(600,)).start()"
CHILD = (
    "import multiprocessing as m; "
    "m.get_context('fork').Process(target=time.sleep, args=(600,)).start()"
)
HANDLER = "import atexit; atexit.register(time.sleep, 600)"


@pytest.mark.parametrize("beside", [THREAD, CHILD, HANDLER])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_raise_ends_the_job_whatever_lives_beside_it(tmp_path, beside, ranks):
    script = FAIL.format(f"{beside}; raise ValueError('boom')").replace("'1'", f"'{ranks - 1}'")
    ended = dtrun(tmp_path, script, "--nproc-per-node", str(ranks))
    assert ended.code == 1 and "cause     : ValueError: boom" in ended.err
    assert "exitcode  : 1 " in ended.err and "Traceback" in ended.err


def test_a_thread_may_end_its_work_after_a_success(tmp_path):
    script = (
        "import threading, time\n"
        "def work():\n    time.sleep(0.5)\n    print('done')\n"
        "threading.Thread(target=work).start()\n"
    )
    assert dtrun(tmp_path, script).out == "done\n"


FORKED = """
import os, sys
child = os.fork()
if child == 0:
    {}
else:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    from disttrain import context
    segment = context.current().slots["comm.job"]
    slot = segment.slot(int(os.environ["RANK"]))
    print(code, slot.state, slot.error, segment.failure())
"""


@pytest.mark.parametrize(
    ("end", "code"), [("raise ValueError('child')", 1), ("sys.exit(4)", 4), ("pass", 0)]
)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_that_a_rank_forks_does_not_speak_for_it(tmp_path, end, code, method):
    ended = dtrun(tmp_path, FORKED.format(end), *TWO, "--start-method", method)
    assert ended.code == 0 and ended.err.count("ValueError: child") == (2 if code == 1 else 0)
    assert sorted(ended.out.splitlines()) == [
        f"[rank {r}] {code} running ('', '') None" for r in (0, 1)
    ]


def test_a_rank_that_vanishes_is_the_cause_of_what_it_makes_others_fail_of(tmp_path):
    script = (
        "import os\nfrom disttrain.errors import PeerFailed\n"
        "if os.environ['RANK'] == '1': os._exit(0)\n"
        "raise PeerFailed(1, 'it has ended')\n"
    )
    ended = dtrun(tmp_path, script, *TWO)
    headline = ended.err[ended.err.index("Root Cause") :]
    assert ended.code == 1 and "rank      : 1 " in headline
    assert "cause     : ended with exit code 0 in the middle of its program" in headline
    assert "rank 0: PeerFailed: rank 1 failed: it has ended" in headline
    alone = "import os\nif os.environ['RANK'] == '1': os._exit(0)"
    assert dtrun(tmp_path, alone, *TWO).code == 0  # it may have been done


DAEMONS = """
import os, subprocess, sys, time
subprocess.Popen(["setsid", "sleep", "60"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        open("daemon" + os.environ["RANK"], "w").close()
        time.sleep(60)
    os._exit(0)
while not all(os.path.exists(f"daemon{r}") for r in (0, 1)):
    time.sleep(0.005)
"""


@pytest.mark.parametrize("end", ["fails", "returns"])
def test_what_the_ranks_started_goes_with_them(tmp_path, end):
    end_code = {"fails": 3, "returns": 0}[end]
    ended = dtrun(tmp_path, DAEMONS + f"sys.exit({end_code})", *TWO)
    assert ended.code == end_code


def test_everything_goes_when_a_part_of_the_launcher_is_killed(tmp_path):
    script = DAEMONS + "open('up' + os.environ['RANK'], 'w').close()\ntime.sleep(60)"
    for victim in ("front", "warden", "agent"):
        folder = tmp_path / victim
        folder.mkdir()
        job = Job(folder, script, *TWO)
        job.wait_for("up0", "up1")
        os.kill(job.launcher()[victim], signal.SIGKILL)
        ended = job.wait()
        job.all_gone()
        assert ended.code == (-9 if victim == "front" else 137)


# --- signals -------------------------------------------------------------------------------------

READY = (
    "import os, signal, time\n{}\nopen('up' + os.environ['RANK'], 'w').close()\ntime.sleep(60)\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on(tmp_path, number):
    handler = (
        f"def handle(*_):\n    open('got' + os.environ['RANK'], 'w').close()\n    os._exit(0)\n"
        f"signal.signal({int(number)}, handle)"
    )
    job = Job(tmp_path, READY.format(handler), *TWO)
    job.wait_for("up0", "up1")
    job.process.send_signal(number)
    ended = job.wait()
    assert ended.code == 128 + number and "Traceback" not in ended.err
    job.wait_for("got0", "got1")
    assert job.processes() == []


def test_ranks_without_handlers_end_at_once(tmp_path):
    job = Job(tmp_path, READY.format(""), *TWO)
    job.wait_for("up0", "up1")
    job.process.terminate()
    assert job.wait().code == 143


def test_a_second_interrupt_kills(tmp_path):
    ignore = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGINT, lambda *_: open('got' + os.environ['RANK'], 'w').close())"
    )
    script = READY.format(ignore) + "time.sleep(60)\n"
    job = Job(tmp_path, script, *TWO, "--shutdown-timeout", "60")
    job.wait_for("up0", "up1")
    job.process.send_signal(signal.SIGINT)
    job.wait_for("got0", "got1")
    job.process.send_signal(signal.SIGINT)
    ended = job.wait()
    assert ended.code == 130 and "Traceback" not in ended.err
    assert job.processes() == []


def test_ranks_that_ignore_signals_are_killed_in_time(tmp_path):
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    job = Job(tmp_path, READY.format(ignore), *TWO, "--shutdown-timeout", "0.1")
    job.wait_for("up0", "up1")
    job.process.terminate()
    assert job.wait().code == 143
    assert job.processes() == []


# --- restarts, logs, refusals --------------------------------------------------------------------


def test_a_failed_job_is_restarted_as_a_whole(tmp_path):
    script = (
        "import os\nfrom disttrain import context\n"
        "n = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "assert context.current().slots['comm.job'].epoch == n + 1\n"
        "open('up%s.%d' % (os.environ['RANK'], n), 'w').close()\n"
        "if n < 2 and os.environ['RANK'] == '1': raise ValueError('again')\n"
        "print('done', n)\n"
    )
    ended = dtrun(tmp_path, script, *TWO, "--max-restarts", "2")
    assert ended.code == 0
    assert sorted(ended.out.splitlines())[-2:] == ["[rank 0] done 2", "[rank 1] done 2"]
    assert "dtrun: rank 1 failed (ValueError: again); restart 2 of 2" in ended.err
    assert (tmp_path / "up0.2").exists()
    ended = dtrun(tmp_path, script, *TWO, "--max-restarts", "1")
    assert ended.code == 1


def test_logs_error_files_and_the_report(tmp_path):
    script = "import sys\nprint('hello')\nprint('hm', file=sys.stderr)\n" + FAIL.format(
        "raise ValueError('boom')"
    )
    flags = ("--log-dir", "logs", "-r", "1", "-t", "2", "--local-ranks-filter", "1")
    ended = dtrun(tmp_path, script, *TWO, *flags)
    assert ended.out == "" and ended.err.startswith("hm\n")
    logs = tmp_path / "logs"
    for rank in (0, 1):
        assert (logs / f"attempt_0/{rank}/stdout.log").read_text() == "hello\n"
        assert (logs / f"attempt_0/{rank}/stderr.log").read_text().startswith("hm\n")
    error = json.loads((logs / "attempt_0/1/error.json").read_text())["message"]
    assert error["message"] == "ValueError: boom"
    assert "line 6, in <module>" in error["extraInfo"]["py_callstack"]
    assert int(error["extraInfo"]["timestamp"]) > 0 and error["timestamp_ns"] > 0
    report = json.loads((logs / "report.json").read_text())
    assert report["exitcode"] == 1 and report["root_cause"]["rank"] == 1
    assert report["root_cause"]["cause"] == "ValueError: boom"
    assert report["ranks"][0]["stopped"] is True
    assert os.stat(logs / "report.json").st_mode & 0o77 == 0


def test_files_without_a_directory_get_one(tmp_path):
    ended = dtrun(tmp_path, "print('hello')", *TWO, "--redirects", "3")
    assert ended.out == ""
    (place,) = tmp_path.glob("dtrun_*")
    assert (place / "attempt_0/1/stdout.log").read_text() == "hello\n"
    assert ended.err == f"dtrun: outputs go to {place}\n"


def test_a_slow_reader_does_not_stop_the_agent(tmp_path):
    """Rank 0 says more than a pipe holds and nobody listens; rank 1's death is noticed."""
    script = (
        "import os, time\nif os.environ['RANK'] == '0':\n    open('up', 'w').close()\n"
        "    while True: print('x' * 1000)\n"
        "while not os.path.exists('up'): time.sleep(0.005)\ntime.sleep(0.1)\n"
        "os.kill(os.getpid(), 9)"
    )
    job = Job(tmp_path, script, *TWO, "--log-dir", "logs")
    job.wait_for("logs/report.json")
    assert job.wait().code == 137


def test_dry_run_starts_nothing(tmp_path):
    ended = dtrun(tmp_path, "open('started', 'w')", *TWO, "--dry-run", "--max-restarts", "3")
    assert ended.code == 0 and not (tmp_path / "started").exists()
    for text in ("script: script.py", "ranks: 2", "restarts: 3", "  RANK=1", "  MASTER_PORT="):
        assert text in ended.out


@pytest.mark.parametrize(
    "flags, said",
    [
        (("--nproc-per-node", "0"), "--nproc-per-node 0: at least one rank"),
        (("--nproc-per-node", "many"), "--nproc-per-node many: a number, auto"),
        (("--nnodes", "x"), "--nnodes x"),
        (("--nnodes", "2", "--rdzv-endpoint", "host:0"), "several nodes need one port"),
        (("--frobnicate",), "--frobnicate"),
        (("--numa-binding", "bogus"), "--binding: invalid choice: 'bogus'"),
    ],
)
def test_usage_errors_say_what_is_needed(tmp_path, flags, said):
    ended = dtrun(tmp_path, "", *flags)
    assert ended.code == 2 and said in ended.err and "Traceback" not in ended.err


def test_programs_that_are_not_there(tmp_path):
    job = Job(tmp_path, "", *TWO, "absent.py")
    ended = job.wait()
    assert ended.code == 2 and "absent.py: no such file" in ended.err
    ended = Job(tmp_path, "", *TWO, "-m", "absent_module").wait()
    assert ended.code == 1 and "No module named absent_module" in ended.err


LEAVES_FILES_OPEN = """import gzip, sys

class Log:
    def __init__(self, where):
        self.me = self
        self.text, self.data = open(where + ".txt", "w"), open(where + ".bin", "wb")
        self.packed = gzip.open(where + ".gz", "wt")

log = Log(sys.argv[1])
log.text.write("text")
log.data.write(b"data")
log.packed.write("packed")
"""


def test_what_was_written_to_files_that_are_left_open_is_in_them(tmp_path):
    ended = dtrun(tmp_path, LEAVES_FILES_OPEN, args=(str(tmp_path / "left"),))
    assert ended.code == 0, ended.err
    assert (tmp_path / "left.txt").read_text() == "text"
    assert (tmp_path / "left.bin").read_bytes() == b"data"
    assert gzip.decompress((tmp_path / "left.gz").read_bytes()) == b"packed"
