"""``python -m disttrain.compat.jax [-m] script args``: run a program with the stand-in."""

import sys

from ..running import run
from . import install

if __name__ == "__main__":
    sys.exit(run("jax", "JAX", install, sys.argv[1:]))
