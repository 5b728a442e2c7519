"""The example programs, as a user starts them: each learns, and says so by its exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "scripts" / "examples"
# Fewer steps than by default, and what they must reach.
SHORT = {
    "parameter_server.py": (3, ["--mode", "sync", "--steps", "60", "--needed", "0.8"]),
    "parameter_server.py async": (3, ["--mode", "async", "--steps", "40", "--needed", "0.8"]),
    "pipeline.py": (3, ["--epochs", "2", "--needed", "0.7"]),
    "rnn.py": (2, ["--steps", "40", "--needed", "2.9"]),
    "batch_rpc.py": (3, ["--steps", "80", "--needed", "0.7"]),
    "actor_learner.py": (3, ["--updates", "60", "--needed", "30"]),
}


def run(name: str, ranks: int, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "disttrain_launcher",
            "--nproc-per-node",
            str(ranks),
            EXAMPLES / name,
            *words,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=50,
    )


@pytest.mark.parametrize("case", SHORT)
def test_example_learns(case):
    ranks, words = SHORT[case]
    done = run(case.split()[0], ranks, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d( steps)? \(needed: [\d.]+\)$", done.stdout.strip()), done.stdout
    assert done.stderr == ""


def test_an_example_that_misses_its_figure_fails():
    done = run("parameter_server.py", 2, "--steps", "1", "--needed", "0.99")
    assert done.returncode == 1
    assert "(needed: 0.99)" in done.stdout


def test_every_example_is_tested_and_in_the_readme():
    names = {path.name for path in EXAMPLES.glob("*.py")} - {"example_data.py"}
    assert names == {case.split()[0] for case in SHORT}
    readme = (ROOT / "README.md").read_text()
    assert [name for name in names if f"scripts/examples/{name}" not in readme] == []
