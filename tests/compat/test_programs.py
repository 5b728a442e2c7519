"""Whole programs in the style of public tutorials, run under the name ``torch``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"

# program -> (pattern, how often it must be found)
EXPECTED = {
    "scalar_engine": (r"^(simple|mixed) ok$", 2),
    "preliminaries": (r"^D2L DONE$", 1),
    "linear_regression": (r"^D2L DONE$", 1),
    "manual_backprop": (r"approximate: True", 26),
    "digits_cnn": (r"Test set: .*\((?:7[3-9]|[89]\d|100)%\)", 1),
    "vae": (r"Test set loss: (?:1?\d?\d|2[0-5]\d)\.", 1),
    "two_layer_nets": (r"^499 ", 6),
    "word_lstm": (r"Generated 0/\d+", 1),
    "names_mlp": (r"^sample: ", 1),
    "ddp_spawn": (r"falls True, equal True", 2),
}


ALONE = ("disttrain.compat.torch",)
SIMULATED = ("disttrain_launcher", "--as-torch", "--simulate", "2", "--compute", "0")


@pytest.mark.parametrize("start", [ALONE, SIMULATED], ids=["alone", "simulated"])
@pytest.mark.parametrize("name", EXPECTED)
def test_program(tmp_path, name, start):
    """Simulated, every rank runs the whole of it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *start, str(PROGRAMS / f"{name}.py")]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr[-2000:]
    pattern, times = EXPECTED[name]
    printed = re.sub(r"^\[rank \d+\] ", "", done.stdout, flags=re.M)
    times *= 2 if start is SIMULATED else 1
    assert len(re.findall(pattern, printed, re.M)) >= times, done.stdout[-2000:]
