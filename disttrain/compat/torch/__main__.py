"""``python -m disttrain.compat.torch [-m] script args``: run a program with the stand-in."""

import sys

from ..running import run
from . import install

if __name__ == "__main__":
    sys.exit(run("torch", "PyTorch", install, sys.argv[1:]))
