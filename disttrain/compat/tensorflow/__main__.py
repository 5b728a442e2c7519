"""``python -m disttrain.compat.tensorflow [-m] script args``: run a program with the stand-in."""

from __future__ import annotations

import sys

from ..running import run
from . import install

if __name__ == "__main__":
    sys.exit(run("tensorflow", "TensorFlow", install, sys.argv[1:]))
