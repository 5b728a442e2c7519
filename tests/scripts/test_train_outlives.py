"""``scripts/train.py`` outlives its ranks, and saves when it is asked to end."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from disttrain.distributed.checkpoint import tools
from injections.goodput import ranks_of, records
from training import checkpoint

ROOT = Path(__file__).parents[2]
QUICK = ["--model.name", "mlp", "--model.hidden", "16", "--train.epochs", "100000", "--log.every"]
SAVING = ["--on-term", "checkpoint", "--nproc-per-node", "2"]


def start(folder: Path, *flags: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "disttrain_launcher",
        *SAVING,
        *flags,
        str(ROOT / "scripts/train.py"),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    settings = [*QUICK, "1", "--log.dir", str(folder), "--log.tensorboard", "false"]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *settings], env=env, stdout=pipe, stderr=pipe, text=True)


def wait_for(folder: Path, what) -> dict:
    """The first record of which this is true."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for record in records(folder):
            if what(record):
                return record
        time.sleep(0.01)
    raise AssertionError(f"not recorded: {records(folder)[-3:]}")


def ended(job: subprocess.Popen) -> tuple[str, str]:
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=30)
    assert job.returncode == 143, (out, err)
    return out, err


def progress(folder: Path) -> dict:
    found = checkpoint.find(folder)
    tools.verify(str(found))
    return tools.values(str(found), ["progress"])["progress"]


def test_a_rank_is_killed_and_replaced_and_the_last_step_is_saved(tmp_path):
    job = start(tmp_path, "--replace-ranks", "--max-restarts", "3")
    wait_for(tmp_path, lambda r: r["step"] >= 5)
    os.kill(ranks_of(job.pid)[1], signal.SIGKILL)
    alone = wait_for(tmp_path, lambda r: r["kind"] == "resume")
    both = wait_for(tmp_path, lambda r: r["kind"] == "resume" and r["step"] > alone["step"])
    wait_for(tmp_path, lambda r: r["kind"] == "train" and r["step"] > both["step"] + 5)
    out, err = ended(job)
    assert "stopped, and saved" in out and "Traceback" not in err
    told = [r["step"] for r in records(tmp_path) if r["kind"] == "train"]
    assert max(b - a for a, b in itertools.pairwise(told)) == 1  # none is left out
    assert progress(tmp_path)["step"] >= told[-1] and len(list(tmp_path.iterdir())) == 1


def test_a_run_that_was_asked_to_end_goes_on_where_it_was(tmp_path):
    job = start(tmp_path)
    wait_for(tmp_path, lambda r: r["step"] >= 3)
    out, _ = ended(job)
    run = str(tmp_path / "0001")
    assert out.splitlines()[-1] == f"[rank 0] stopped, and saved; --resume {run} goes on"
    saved = progress(tmp_path)["step"]
    code = subprocess.run(
        [sys.executable, str(ROOT / "scripts/train.py"), f"--resume={run}"]
        + [f"--train.epochs={saved // 22 + 1}", "--parallel.strategy=none"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=50,
        check=False,
    ).returncode
    assert code == 0
    lines = records(tmp_path)
    at = [i for i, r in enumerate(lines) if r["kind"] == "resume"]
    assert len(at) == 1 and lines[at[0]]["step"] == saved
    assert next(r["step"] for r in lines[at[0] :] if r["kind"] == "train") == saved + 1
