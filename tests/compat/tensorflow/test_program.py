"""A program prints what it has printed with TensorFlow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(*words):
    root = str(HERE.parents[2])
    env = os.environ | {"PYTHONPATH": os.pathsep.join([root, *os.environ.get("PYTHONPATH",
        "").split(
        os.pathsep)])}  # fmt: skip
    return subprocess.run([sys.executable, "-m", "disttrain.compat.tensorflow", *words], env=env,
                          capture_output=True, text=True, timeout=120)  # fmt: skip


def parts(text):
    """Its words, and its numbers with a point, whose last digits are the machine's."""
    number = r"-?\d+\.\d*"
    words = [" ".join(line.split()) for line in re.sub(number, "#", text).splitlines()]
    return words, [float(n) for n in re.findall(number, text)]


def test_tapes_functions_and_autograph():
    done = run(str(HERE / "program.py"))
    assert done.returncode == 0, done.stderr
    said, wanted = (parts(text) for text in (done.stdout, (HERE / "program.txt").read_text()))
    assert said[0] == wanted[0]
    assert said[1] == pytest.approx(wanted[1], rel=1e-4, abs=1e-6)


def test_the_command_tells_its_words():
    assert "usage: python -m disttrain.compat.tensorflow" in run("--help").stdout
    assert run("/nonexistent.py").returncode == 2


def test_importing_disttrain_imports_no_face():
    code = "import disttrain, sys; print([m for m in sys.modules if 'disttrain.compat' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=HERE.parents[2])  # fmt: skip
    assert done.stdout.strip() == "[]"
