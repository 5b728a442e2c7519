"""``python -m disttrain.compat.jax [--simulate N] [-m] script args``: run a program with the
stand-in, on N devices."""

import sys

from ...distributed.spmd import simulate
from ..running import run
from . import install

if __name__ == "__main__":
    sys.exit(run("jax", "JAX", install, sys.argv[1:], {"--simulate": simulate}))
