"""``disttrain doctor``: honest, quick, never an error; says what missing things would enable."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from disttrain import doctor
from disttrain.cli import main
from disttrain.doctor import finding
from disttrain.doctor.finding import Finding, guarded


def test_report_names_everything(capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for name in (
        "processor",
        "cores",
        "memory",
        "/dev/shm",
        "memfd",
        "pidfd",
        "open files",
        "numpy",
        "LLVM",
    ):
        assert name in shown
    for name in ("libmvec", "mpiexec", "mpi4py", "driver", "cupy", "NCCL", "python", "torch"):
        assert name in shown


def test_json_says_the_same(capsys):
    assert main(["doctor", "--json"]) == 0
    found = {f["name"]: f for f in json.loads(capsys.readouterr().out)}
    assert found["cores"]["value"].startswith(str(len(os.sched_getaffinity(0))))
    assert {f["state"] for f in found.values()} <= {"ok", "missing", "problem"}
    for f in found.values():
        if f["state"] == "missing":
            assert f["enables"] and f["install"], f


def test_absent_library_is_explained():
    findings = [
        Finding("GPU", "driver", "ok", "R"),
        Finding("GPU", "cupy", "missing", "not found", "training on GPUs", "pip install x"),
    ]
    assert doctor.report(findings).splitlines() == [
        "GPU",
        "  ok      driver  R",
        "  -       cupy    not found",
        " " * 18 + "training on GPUs",
        " " * 18 + "-> pip install x",
    ]


def test_a_probe_that_breaks_is_a_finding():
    def _broken_thing():
        raise OSError("the driver is confused")
        yield

    (found,) = guarded(_broken_thing)
    assert (found.state, found.name) == ("problem", "broken thing")
    assert "the driver is confused" in found.value


def test_hanging_and_crashing_children_are_reported(monkeypatch):
    monkeypatch.setattr(finding, "CHILD_SECONDS", 0.2)
    assert "no answer within" in finding.child("import time; time.sleep(60)")
    monkeypatch.setattr(finding, "CHILD_SECONDS", 20.0)
    assert "ended with code" in finding.child("import os; os.abort()")
    assert finding.child("raise ImportError('nope')") == "ImportError: nope"


def test_sizes_are_readable():
    assert [finding.size(n) for n in (5, 2048, 3 << 20, 5 << 30)] == [
        "5 B",
        "2 KiB",
        "3 MiB",
        "5.0 GiB",
    ]


def test_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "disttrain.cli", "doctr"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2 and "doctor" in done.stderr
    with pytest.raises(SystemExit) as info:
        main(["--help"])
    assert info.value.code == 0
