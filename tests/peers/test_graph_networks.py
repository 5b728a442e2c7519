"""Graph networks, as programs for PyTorch have them, give its losses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peer
PROGRAMS = Path(__file__).parents[1] / "compat" / "torch" / "programs"


@pytest.mark.parametrize("program", ["gcn.py", "gat.py"])
def test_the_same_program_has_the_same_losses(program):
    lines = []
    for how in ((), ("-m", "disttrain.compat.torch")):
        command = [sys.executable, "-W", "ignore", *how, PROGRAMS / program]
        done = subprocess.run(command, check=True, timeout=200, text=True, capture_output=True)
        lines.append([float(x) for x in re.findall(r"\d+\.\d+", done.stdout)])
    theirs, ours = lines
    assert len(theirs) >= 30 and ours == pytest.approx(theirs, abs=2e-5)
