"""``disttrain ckpt prove-resume``: from which checkpoint on, in a copy, and what differs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import disttrain as dt
from disttrain.cli import main, prove
from disttrain.distributed import checkpoint as dcp


@pytest.fixture
def run(tmp_path):
    """A run with three checkpoints."""
    folder = tmp_path / "run"
    for k in (1, 2, 3):
        dcp.save({"w": dt.full((2,), float(k)), "n": k}, checkpoint_id=folder / f"epoch_{k}")
    (folder / "config.toml").write_text("x = 1")
    return folder


@pytest.fixture
def resumed(monkeypatch):
    """Programs that go on: what they were given, and what they write into the copy."""
    seen = {}

    def start(command, **options):
        copy = Path(command[command.index("--resume") + 1])
        seen["command"], seen["copy"] = command, sorted(p.name for p in copy.iterdir())
        for name, state in seen.get("writes", {}).items():
            dcp.save(state, checkpoint_id=copy / name)
        return subprocess.CompletedProcess(command, seen.get("code", 0), "", "it broke")

    monkeypatch.setattr(prove.subprocess, "run", start)
    return seen


def prove_resume(run, *words):
    return main(["ckpt", "prove-resume", str(run), *words])


def test_a_run_that_comes_out_alike(run, resumed, capsys):
    resumed["writes"] = {"epoch_3": {"w": dt.full((2,), 3.0), "n": 3}}
    assert prove_resume(run, "--world", "2", "--program", "p.py", "--train.epochs", "3") == 0
    assert (
        capsys.readouterr().out == "bitwise equal: 2 values (from epoch_1 to epoch_3 on 2 ranks)\n"
    )
    assert resumed["copy"] == ["config.toml", "epoch_1"]
    command = resumed["command"]
    assert command[1:5] == ["-m", "disttrain_launcher", "--nproc-per-node", "2"]
    assert command[5] == "p.py" and command[-2:] == ["--train.epochs", "3"]
    assert sorted(p.name for p in run.iterdir()) == [
        "config.toml",
        *(f"epoch_{k}" for k in (1, 2, 3)),
    ]


def test_what_differs_is_told(run, resumed, capsys):
    resumed["writes"] = {"epoch_3": {"w": dt.full((2,), 3.5), "extra": 1}}
    assert prove_resume(run, "--start", "epoch_2") == 1
    told = capsys.readouterr().out.splitlines()
    assert "only in one of them: n" in told and "only in one of them: extra" in told
    assert "w: 2 of 2 elements differ, by 0.5 at most" in told
    assert told[-1] == "differs: 1 values (from epoch_2 to epoch_3 on 1 ranks); 0 are equal"
    assert resumed["copy"] == ["config.toml", "epoch_2"]
    words = [w for key in ("w", "n", "extra") for w in ("--ignore", key)]
    assert prove_resume(run, *words) == 0


def test_what_cannot_be_compared(run, resumed, tmp_path, capsys):
    resumed["writes"] = {"epoch_2": {"n": 2}}
    assert prove_resume(run) == 2
    assert "the resumed run wrote no epoch_3; it has epoch_1, epoch_2" in capsys.readouterr().err
    resumed["code"] = 3
    assert prove_resume(run) == 2
    assert "ended with 3: it broke" in capsys.readouterr().err
    assert prove_resume(tmp_path / "nothing") == 2
    assert "has 0 checkpoints; two or more are needed" in capsys.readouterr().err
