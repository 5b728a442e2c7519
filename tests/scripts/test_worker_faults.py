"""A little of the programs that kill workers and that look whether calls cost memory for good."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from disttrain_launcher.worker.processes import descendants
from injections import worker_kills

ROOT = Path(__file__).parents[2]


def test_who_calls_is_told_and_nothing_is_left(tmp_path):
    seconds, wrong = worker_kills.run(3, 1, tmp_path)
    assert wrong == [] and len(seconds) == 3


def test_workers_of_a_trial_that_fails_are_ended(tmp_path, monkeypatch):
    before = set(descendants(os.getpid()))
    monkeypatch.setattr(worker_kills, "PATIENCE", 0.0)
    with pytest.raises(AssertionError, match="did not begin to train"):
        worker_kills.run(1, 1, tmp_path)
    assert set(descendants(os.getpid())) == before


def test_calls_and_contexts_cost_no_memory_for_good():
    done = subprocess.run(
        [
            sys.executable,
            "tests/injections/worker_growth.py",
            "--calls",
            "500",
            "--contexts",
            "200",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
