"""dtrun as a command among others: readers that go, full disks, closed descriptors, kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disttrain_launcher.node.output import Stream, colored, is_colored
from disttrain_launcher.worker.logs import Log
from support.dtrun import ROOT, Job, dtrun, until

TWO = ("--nproc-per-node", "2")
HELLO = "import sys\nprint('hello')\nprint('error', file=sys.stderr)\n"
TALKS = """
import sys
import disttrain.cli as cli, disttrain.cli.doctor as doctor
doctor.report = lambda findings: "x\\n" * 10**6
sys.argv[1:] = ["doctor"]
sys.exit(cli.command())
"""
MOVES = """
import os, tempfile
import disttrain.distributed as dist
dist.init_process_group()
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    dist.barrier()
dist.barrier()
print('end', flush=True)
"""
ENDLESS = "import itertools\nfor i in itertools.count():\n    print(i, flush=True)\n"


# --- readers and disks ---------------------------------------------------------------------------


def first_line(folder, *command: str) -> tuple[str, int, str]:
    """(what `| head -1` shows, exit code, stderr) of a command."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=folder, env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    line = process.stdout.readline()
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    return line, process.wait(), error


@pytest.mark.parametrize("flags", ["--nproc-per-node 1", "--nproc-per-node 2", "--simulate 2"])
def test_a_job_that_nobody_reads_any_more_ends_quietly(tmp_path, flags):
    (tmp_path / "endless.py").write_text(ENDLESS)
    line, code, error = first_line(tmp_path, "disttrain_launcher", *flags.split(), "endless.py")
    assert line.endswith("0\n") and (code, error) == (141, "")


def test_commands_that_nobody_reads_any_more_end_quietly(tmp_path):
    (tmp_path / "script.py").write_text("")
    dry = ("disttrain_launcher", "--nproc-per-node", "300", "--dry-run", "script.py")
    line, code, error = first_line(tmp_path, *dry)
    assert line.startswith("script:") and (code, error) == (141, "")
    (tmp_path / "talks.py").write_text(TALKS)
    assert first_line(tmp_path, "talks") == ("x\n", 141, "")


@pytest.mark.parametrize(("ranks", "closed"), [(1, 1), (2, 2)])
def test_closed_outputs_are_no_failure(tmp_path, ranks, closed):
    (tmp_path / "script.py").write_text(HELLO)
    command = f'exec "$0" -m disttrain_launcher --nproc-per-node {ranks} script.py {closed}>&-'
    ended = subprocess.run(
        ["sh", "-c", command, sys.executable], cwd=tmp_path, text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=30,
    )  # fmt: skip
    heard = ended.stderr if closed == 1 else ended.stdout
    assert ended.returncode == 0 and heard.count("error" if closed == 1 else "hello") == ranks
    assert "Traceback" not in heard


def test_output_that_is_lost_is_said(tmp_path):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "disttrain_launcher", *TWO, tmp_path / "script.py"], stdout=full,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
            timeout=30, check=not (tmp_path / "script.py").write_text(HELLO),
        )  # fmt: skip
    assert "dtrun: stdout: 30 bytes of the ranks' output are lost: No space left" in ended.stderr


@pytest.fixture
def full_disk(tmp_path):
    """A folder on a disk that is full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can make a small disk here")
    (folder / "fill").write_bytes(b"x" * 60_000)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_costs_logs_and_not_the_headline(tmp_path, full_disk):
    script = "print('x' * 200_000)\nraise ValueError('boom')\n"
    ended = dtrun(tmp_path, script, *TWO, "--log-dir", str(full_disk / "logs"), "--redirects", "3")
    assert ended.code == 1 and "ulimit" not in ended.err
    assert "cause     : ValueError: boom" in ended.err
    assert "bytes of output are missing: No space left" in ended.err


SAVES = """
import sys
import disttrain as dt
import disttrain.distributed as dist
import disttrain.distributed.checkpoint as dcp
from disttrain import config, outputs
from disttrain.errors import SerializationError
from disttrain.metrics import JsonLines
def main():
    dist.init_process_group()
    try:
        if "checkpoint" in sys.argv:
            dcp.save({"x": dt.ones(100_000)}, checkpoint_id=f"{sys.argv[1]}/saved")
        elif "lines" in sys.argv and dist.get_rank() == 0:
            lines = JsonLines(f"{sys.argv[1]}/saved")
            while True:
                lines.write({"x": "x" * 5000})
        dist.barrier()
    except SerializationError as error:
        print(f"script: {error}", file=sys.stderr)
        return 2
    return 0
sys.exit(outputs.command(main, "script"))
"""


@pytest.mark.parametrize("what", ["checkpoint", "lines"])
def test_what_fills_a_disk_is_named_in_the_headline(what, tmp_path, full_disk):
    """Also where the program keeps its exception to itself."""
    ended = dtrun(tmp_path, SAVES, *TWO, args=(str(full_disk), what))
    headline = ended.err.partition("Root Cause")[2]
    assert f"{full_disk}/saved" in headline and "No space left on device" in headline
    assert ended.code == (2 if what == "checkpoint" else 1)
    assert ("said last : script: " in headline) == (what == "checkpoint")


@pytest.mark.parametrize("flag", [True, False])
def test_a_token_file_that_others_may_read_is_refused_in_a_line(flag, tmp_path):
    (tmp_path / "token").write_bytes(bytes(32))
    (tmp_path / "token").chmod(0o644)
    flags = ("--token-file", "token") if flag else ()
    env = {} if flag else {"DISTTRAIN_TOKEN_FILE": "token"}
    ended = dtrun(
        tmp_path, HELLO, "--nnodes", "2", "--rdzv-endpoint", "localhost:1", *flags, env=env
    )
    assert ended.code == 2 and ended.out == ""
    assert ended.err.startswith("dtrun: token file token: others may read") and "0644" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_where_no_file_can_be_made_outputs_are_shown(tmp_path, full_disk):
    more = ["mount", "-o", "remount,nr_inodes=3", str(full_disk)]
    subprocess.run(more, check=True)
    (full_disk / "last").write_text("")
    ended = dtrun(tmp_path, HELLO, *TWO, "--log-dir", str(full_disk / "a" / "b"), "-r", "3")
    assert ended.code == 0
    assert ended.out.count("hello") == 2 and "are shown here: [Errno 28]" in ended.err


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    ended = dtrun(tmp_path, "open('ran', 'w')", *TWO, "--log-dir", "file/logs")
    assert (ended.code, ended.out) == (2, "") and "dtrun: --log-dir file/logs: Not a" in ended.err
    assert not (tmp_path / "ran").exists()


def test_what_a_log_lacks_is_counted():
    log = Log("/dev/full")
    log.write(b"x" * 10)
    log.write(b"y" * 5)
    assert log.close() == "/dev/full: 15 bytes of output are missing: No space left on device"


# --- limits --------------------------------------------------------------------------------------

UNDER = "import os, resource, runpy, sys\nresource.setrlimit({}, ({}, {}))\n" + (
    "from disttrain_launcher.command import main\n"
    "sys.argv = ['dtrun', *sys.argv[1:]]\nsys.exit(main())\n"
)


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("resource.RLIMIT_NOFILE", 24, "(ulimit -n); "),
        ("resource.RLIMIT_FSIZE", 1 << 20, "(ulimit -f)"),
    ],
)
def test_an_error_names_the_limit_that_it_is_about(tmp_path, limit, value, said):
    (tmp_path / "script.py").write_text("")
    (tmp_path / "under.py").write_text(UNDER.format(limit, value, value))
    ended = subprocess.run(
        [sys.executable, "under.py", "--nproc-per-node", "8", "script.py"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert ended.returncode and said in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr and "ulimit -u" not in ended.stderr


def test_ranks_have_the_limit_of_open_files_that_dtrun_was_given(tmp_path):
    """Which itself takes as many as it may: each rank costs it some."""
    script = (
        "import os, resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0], "
        "len(os.listdir('/proc/self/fd')) < 20)"
    )
    (tmp_path / "script.py").write_text(script)
    hard = "resource.getrlimit(resource.RLIMIT_NOFILE)[1]"
    (tmp_path / "under.py").write_text(UNDER.format("resource.RLIMIT_NOFILE", 40, hard))
    ended = subprocess.run(
        [sys.executable, "under.py", "--nproc-per-node", "12", "script.py"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    lines = [line.partition("] ")[2] for line in ended.stdout.splitlines()]
    assert lines == ["40 True"] * 12, ended.stderr


# --- ends ----------------------------------------------------------------------------------------

HELPERS = """
import multiprocessing, os, subprocess, time
if os.environ["RANK"] == "0":
    subprocess.Popen(["setsid", "sleep", "60"])
subprocess.Popen(["sleep", "60"])
multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)).start()
open("up" + os.environ["RANK"], "w").close()
time.sleep(60)
"""


@pytest.mark.parametrize("victims", ["front agent", "front warden", "warden agent"])
def test_whichever_two_of_the_launcher_are_killed_at_once_nothing_is_left(tmp_path, victims):
    job = Job(tmp_path, HELPERS, *TWO)
    job.wait_for("up0", "up1")
    launcher = job.launcher()
    for name in victims.split():
        os.kill(launcher[name], signal.SIGKILL)
    job.wait()
    job.all_gone()


def test_process_groups_go_when_all_of_the_launcher_is_killed_at_once(tmp_path):
    """The kernel does it; nobody else is left."""
    script = HELPERS.replace('"setsid", ', "")
    job = Job(tmp_path, script, *TWO)
    job.wait_for("up0", "up1")
    for pid in job.launcher().values():
        os.kill(pid, signal.SIGKILL)
    job.wait()
    job.all_gone()


def test_nohup_lets_a_job_outlive_its_terminal(tmp_path):
    script = (
        "import os, signal, time\nopen('up' + os.environ['RANK'], 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)\n"
    )
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    job = Job(tmp_path, script, *TWO, **ignore)
    job.wait_for("up0", "up1")
    for pid in job.launcher().values():
        os.kill(pid, signal.SIGHUP)
    time.sleep(0.05)
    (tmp_path / "go").write_text("")
    ended = job.wait()
    assert (ended.code, ended.out.count("True")) == (0, 2)


INTERRUPTED = """
import os, signal, sys
import disttrain_launcher.command
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["--nproc-per-node", "2", "script.py"]
sys.exit(disttrain_launcher.command.main())
"""


@pytest.mark.parametrize("module", ["disttrain_launcher.command.dispatch", "numpy"])
def test_an_interrupt_while_the_command_loads_is_quiet(tmp_path, module):
    (tmp_path / "script.py").write_text("")
    (tmp_path / "interrupted.py").write_text(INTERRUPTED.format(module))
    ended = subprocess.run(
        [sys.executable, "interrupted.py"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=30,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_a_rank_that_interrupts_itself_has_a_traceback(tmp_path):
    script = (
        "import os, time\ndef inner():\n    raise KeyboardInterrupt\n"
        "if os.environ['RANK'] == '1':\n    inner()\ntime.sleep(60)"
    )
    ended = dtrun(tmp_path, script, *TWO)
    headline = ended.err[ended.err.index("Root Cause") :]
    assert ended.code == 130 and "cause     : KeyboardInterrupt" in headline
    assert "line 3, in inner" in headline


def test_who_leaves_while_others_wait_is_the_one_that_is_blamed(tmp_path):
    script = (
        "import sys\nimport disttrain as dt, disttrain.distributed as dist\n"
        "dist.init_process_group()\n"
        "if dist.get_rank() == 1: sys.exit(0)\ndist.all_reduce(dt.ones(2))\n"
    )
    ended = dtrun(tmp_path, script, "--nproc-per-node", "3", "--log-dir", "logs")
    report = json.loads((tmp_path / "logs" / "report.json").read_text())
    assert ended.code == 1 and report["root_cause"]["rank"] == 1
    assert "has ended its program while others waited: all_reduce" in report["root_cause"]["cause"]


# --- outputs -------------------------------------------------------------------------------------


def test_an_executable_whose_reader_has_gone_ends_as_ever(tmp_path):
    assert first_line(tmp_path, "disttrain_launcher", "--no-python", "yes") == ("y\n", 141, "")


def test_binary_output_is_not_touched(tmp_path):
    data = bytes(range(256)) * 40 + b"\r\n\r\n\n\r"
    script = f"import sys\nsys.stdout.buffer.write(bytes.fromhex('{data.hex()}'))"
    (tmp_path / "script.py").write_text(script)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    flags = [*TWO, "--log-dir", "logs", "--tee", "3", "--local-ranks-filter", "1"]
    ended = subprocess.run(
        [sys.executable, "-m", "disttrain_launcher", *flags, "script.py"],
        cwd=tmp_path, env=env, capture_output=True, timeout=30,
    )  # fmt: skip
    log = next((tmp_path / "logs").rglob("1/stdout.log"))
    assert log.read_bytes() == data and ended.stdout.rstrip(b"\n") == data.rstrip(b"\n")


@pytest.mark.parametrize(
    ("env", "seen"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_prefixes_are_coloured_where_they_are_wanted(env, seen, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert is_colored(None) == seen
    stream = Stream("[rank 1] ", None, rank=1)
    stream.finish(time.monotonic())
    assert stream.prefix.decode() == (colored("[rank 1] ", 1) if seen else "[rank 1] ")


@pytest.mark.parametrize(
    "data", [b"a\nb\n", b"a\n\nb\n", b"\na\n", b"a\r\nb\r\n", b"10%\r20%\r", b"no end", b"[0] \n"]
)
def test_prefixes_change_nothing_but_the_beginnings_of_lines(data):
    stream = Stream("[0] ", None)
    try:
        shown = b"".join(stream._prefixed(part) for part in (data, data))
    finally:
        stream.finish(time.monotonic())
    lines = (data + data).splitlines(keepends=True)
    expected = [b"[0] " * (line not in (b"\n", b"\r", b"\r\n")) + line for line in lines]
    assert shown == b"".join(expected)


@pytest.mark.skipif(
    os.getuid() or not os.path.exists("/sys/fs/cgroup/pids"), reason="needs a control group"
)
def test_too_few_processes_are_an_error_with_the_number_that_is_needed(tmp_path):
    folder = f"/sys/fs/cgroup/pids/disttrain-test-{os.getpid()}"
    os.mkdir(folder)
    try:
        with open(f"{folder}/pids.max", "w") as file:
            file.write("8")

        def enter() -> None:
            with open(f"{folder}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

        script = "import time\ntime.sleep(60)\n"
        ended = dtrun(tmp_path, script, "--nproc-per-node", "8", preexec_fn=enter)
        assert ended.code == 1 and "8 in this control group (pids.max); 11 and" in ended.err
    finally:
        until(lambda: not Path(folder, "cgroup.procs").read_text(), "the group to be empty")
        os.rmdir(folder)


# --- folders that are gone -----------------------------------------------------------------------


@pytest.mark.parametrize("flags", ["--nproc-per-node 2", "--nproc-per-node 2 --start-method spawn",
                                   "--simulate 2"])  # fmt: skip
def test_a_job_runs_from_a_folder_that_was_removed(tmp_path, flags):
    (tmp_path / "hello.py").write_text(HELLO)
    (tmp_path / "gone").mkdir()
    words = [sys.executable, "-m", "disttrain_launcher", *flags.split(), tmp_path / "hello.py"]
    command = 'cd gone && rmdir ../gone && exec "$@"'
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        ["sh", "-c", command, "sh", *map(str, words)],
        cwd=tmp_path, env=env, text=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("hello") == 2
    assert "Errno" not in ran.stderr


def test_simulated_ranks_may_remove_the_folders_that_they_are_in(tmp_path):
    ended = dtrun(tmp_path, MOVES, "--simulate", "2")
    assert ended.code == 0, ended.err
    assert ended.out.count("end") == 2
