"""``python -m disttrain.compat.keras [-m] script args``: run a program with Keras on disttrain."""

import sys

from ..running import run
from . import install

if __name__ == "__main__":
    sys.exit(run("keras", "Keras", install, sys.argv[1:]))
