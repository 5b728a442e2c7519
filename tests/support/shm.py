"""What lies in shared memory under a name."""

from __future__ import annotations

import os

# Of programs that may run beside the tests (those of MPI among them, whose tests look for the names
# of their own jobs), of multiprocessing's own locks, and of tempfile: nothing here makes names of
# these kinds.
_FOREIGN = ("sem.mp-", "psm_", "torch_", "mpich_", "tmp")


def names() -> set[str]:
    """The names that could be ours."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(_FOREIGN)}
