"""Programs that are run with Keras on disttrain, or with another backend, in a process of their
own: this one's ``torch`` stays what it is."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
FACE = "import disttrain.compat.keras as keras\n"
_OUTSIDE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "KERAS_BACKEND")


def run(folder: Path, program: str, *before: str, **env: str) -> subprocess.CompletedProcess:
    """Run a program; ``before``: what starts it, instead of Python itself."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program), encoding="utf-8")
    inherited = {k: v for k, v in os.environ.items() if k not in _OUTSIDE}
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "KERAS_HOME": str(folder), **env}
    command = [sys.executable, *before, str(path)]
    return subprocess.run(
        command, env=inherited | own, capture_output=True, text=True, timeout=110, cwd=folder
    )


def said(folder: Path, program: str, *before: str, **env: str) -> list[str]:
    """The lines that a program which ends well prints."""
    done = run(folder, program, *before, **env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()
