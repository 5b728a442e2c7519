"""The board: which runs it finds, what it answers, and to whom; in a browser where there is one."""

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from disttrain.board.runs import find_runs, read_records, read_report
from disttrain.cli import main
from disttrain.errors import ConfigError
from disttrain.metrics import JsonLines

pytest.importorskip("starlette", reason="the board's packages are missing: disttrain[board]")

SCRIPT = """
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
for _ in range(5):
    dist.all_reduce(dt.ones(8))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs with metrics, and a job's log directory."""
    root = tmp_path_factory.mktemp("runs")
    for name, offset in (("one", 0.0), ("deep/two", 1.0)):
        with JsonLines(root / name / "metrics.jsonl") as lines:
            for step in range(20):
                loss = offset + 1 / (step + 1)
                lines.write({"kind": "train", "step": step, "epoch": 1, "loss": loss})
    program = root / "program.py"
    program.write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "disttrain_launcher",
        "--nproc-per-node",
        "2",
        "--log-dir",
        root / "job",
    ]
    subprocess.run([*command, program], check=True, capture_output=True)
    return root


@contextlib.contextmanager
def running(root):
    """The command, and the address that it prints."""
    command = [sys.executable, "-m", "disttrain.cli", "board", str(root), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        yield process, re.search(r"http://\S+", line)[0]
    finally:
        process.kill()
        process.communicate()


def get(url, token="", **headers):
    headers = {"Authorization": f"Bearer {token}", **headers}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


def test_runs_are_folders_with_metrics_or_what_the_launcher_leaves(folder):
    found = {run.name: run for run in find_runs(folder)}
    assert set(found) == {"one", "deep/two", "job"}
    assert (found["one"].has_metrics, found["job"].has_report) == (True, True)
    assert found["job"].boxes
    assert read_report(found["job"])["exitcode"] == 0
    assert len(read_records(found["one"])[0]) == 20
    with pytest.raises(ConfigError, match="no such directory"):
        find_runs(folder / "nothing")


def test_odd_names_and_records_are_shown_all_the_same(tmp_path):
    names = [b"latin-\xff", b"<script>", b"line\nbreak", b"x" * 250]
    lines = [b'{"step": 1, "\\ud800": 1, "loss": NaN}', b'{"kind": "resume", "step": NaN}',
             b'{"kind": "resume", "step": "x"}', b"[" * 100_000, os.urandom(99), b""]  # fmt: skip
    for name in names:
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        for file, content in ((b"metrics.jsonl", b"\n".join(lines)), (b"report.json", b"[1e999]")):
            with open(os.path.join(folder, file), "wb") as out:
                out.write(content)
    server = importlib.import_module("disttrain.board.server")
    board = server.Board(tmp_path)
    told = json.loads(server._json(server.snapshot(board)).body)
    shown = {"latin-\\xff", "<script>", "line\nbreak", "x" * 250}
    assert {run["name"] for run in told["runs"]} == shown
    assert "\\u003cscript>" in server.page.document(server.snapshot(board))
    for run in board.runs():
        after = json.loads(server._json(server.metrics(run, 1)).body)
        assert after["resumes"] == []
        assert told["metrics"][run.name]["curves"] == {"\ud800": [[1], [1]], "loss": [[1], [None]]}


def test_resumes_are_told_and_counters_left_out(tmp_path):
    with JsonLines(tmp_path / "metrics.jsonl") as lines:
        for step in range(30):
            lines.write(
                {"kind": "train", "step": step, "loss": 1 / (step + 1), "samples": step % 10}
            )
        lines.write({"kind": "resume", "step": 19})
    server = importlib.import_module("disttrain.board.server")
    (run,) = find_runs(tmp_path)
    told = server.metrics(run, 0)
    assert (told["resumes"], told["counters"]) == ([19], ["train/samples"])
    assert list(told["curves"]) == ["train/loss"]


def test_only_who_knows_the_address_is_answered(folder):
    with running(folder) as (process, address):
        base, token = address.split("/?token=")
        for path in (
            "/",
            "/api/runs",
            "/api/ranks?run=job",
            "/plotly.min.js",
            "/?token=wrong",
            "/diff",
        ):
            assert get(base + path)[0] == 403
        assert get(base + "/api/runs", token, Host="board.example.com")[0] == 400
        assert get(base + "/api/runs", token, Cookie="")[0] == 200
        assert "There are none here" in get(base + "/diff", token)[1]
        status, text, headers = get(base + "/", token)
        assert (status, "disttrain board" in text) == (200, True)
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert token not in text
        for bad in ("run=..", "run=../../etc&at=0", "run=one&at=-1", "run=one&at=x", ""):
            assert get(f"{base}/api/metrics?{bad}", token)[0] == 404
        status, text, _ = get(f"{base}/api/metrics?run=deep/two&at=0", token)
        told = json.loads(text)
        assert told["curves"]["train/loss"][1][0] == 2.0
        with JsonLines(folder / "deep/two" / "metrics.jsonl") as lines:
            lines.write({"kind": "train", "step": 20, "loss": 7})
        later = json.loads(get(f"{base}/api/metrics?run=deep/two&at={told['at']}", token)[1])
        assert (later["whole"], later["curves"]) == (False, {"train/loss": [[20], [7]]})
        ranks = json.loads(get(f"{base}/api/ranks?run=job", token)[1])
        assert [row["rank"] for row in ranks["ranks"]] == [0, 1]
        assert {"all_reduce"} <= {span["verb"] for span in ranks["spans"]}
        assert "program.py:5" in str(ranks["spans"])
        many_ask_at_once(base, token)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert "Traceback" not in process.stderr.read()


def many_ask_at_once(base, token):
    answers = []

    def ask():
        for path in ("/api/runs", "/api/ranks?run=job", "/api/metrics?run=one"):
            answers.append(get(base + path, token)[0])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 24


def test_wrong_use_is_told(folder, tmp_path, capsys):
    page = tmp_path / "no" / "such" / "page.html"
    for words, said in (
        ([str(tmp_path / "none")], "no such directory"),
        ([str(folder), "--host", "0.0.0.0"], "this machine alone"),
        ([str(folder), "--export", str(page)], "cannot be written"),
    ):
        assert main(["board", *words]) == 2
        assert said in capsys.readouterr().err


def browser():
    return shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.cluster
@pytest.mark.skipif(browser() is None, reason="no Chromium here")
@pytest.mark.timeout(120)
def test_a_browser_shows_curves_ranks_and_the_timeline(folder, tmp_path):
    """The page that is served, and the one that needs nobody."""
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "disttrain.cli", "board", str(folder), "--export", str(page)]
    subprocess.run(command, check=True, capture_output=True)
    with JsonLines(folder / "one" / "metrics.jsonl") as lines:
        lines.write({"kind": "resume", "step": 15})
    with running(folder) as (_, address):
        for url in (address, page.as_uri()):
            text = shown_by_browser(url, tmp_path)
            assert "<canvas" not in text  # nothing needs a graphics processor
            assert len(re.findall(r'<path class="js-line" d="M', text)) >= 2  # lines are drawn
            assert 'data-ready="yes"' in text
            for words in ("train/loss", "lateness at collectives", "last collectives", "rank 1"):
                assert words in text
            assert text.count('class="main-svg"') >= 4
            assert "deep/two" in text


def shown_by_browser(url, tmp_path):
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu",
               "--virtual-time-budget=9000",
               f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", url]  # fmt: skip
    env = {**os.environ, "HOME": str(tmp_path)}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=env).stdout
