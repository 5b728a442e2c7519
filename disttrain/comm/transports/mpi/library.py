"""The MPI library of this process, through mpi4py: loaded late, since that initializes MPI.

Knows mpi4py; no groups, no arrays.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from typing import Any

from ....errors import CommError

INSTALL = "install it with: pip install 'disttrain[mpi]' (mpi4py, and MPICH as a wheel)"


def missing() -> str | None:
    """Why there is no MPI here; None where there is. Loads nothing."""
    if importlib.util.find_spec("mpi4py") is None:
        return f"mpi4py is not installed; {INSTALL}"
    return None


def load() -> Any:
    """The module ``mpi4py.MPI``, with MPI initialized for several threads.

    Its end is ours (``ending``): mpi4py's own waits in MPI_Finalize for every rank, also for one
    that has failed and will never come.
    """
    try:
        settings = importlib.import_module("mpi4py").rc
        settings.initialize = settings.finalize = False
        module: Any = importlib.import_module("mpi4py.MPI")
    except ImportError as error:
        why = missing() or f"mpi4py cannot load an MPI library ({error}); {INSTALL}"
        raise CommError(f"mpi: {why}.") from None
    if module.Is_finalized():
        raise CommError(
            "mpi: this program has called MPI.Finalize(), after which there is no communication; "
            "leave that to disttrain."
        )
    if not module.Is_initialized():
        _initialize(module)
    if module.Query_thread() < module.THREAD_SERIALIZED:
        raise CommError(
            f"mpi: {module.get_vendor()[0]} was initialized for fewer threads than programs have "
            "here (MPI_THREAD_SERIALIZED is needed). Set mpi4py.rc.thread_level = 'multiple' "
            "before mpi4py.MPI is imported."
        )
    return module


def _initialize(module: Any) -> None:
    """MPI_Init_thread, which waits for all ranks. mpi4py's own keeps this process's other threads
    from running meanwhile (``starting``)."""
    provided = ctypes.c_int()
    init = ctypes.CDLL(module.__file__).MPI_Init_thread
    failed = init(None, None, ctypes.c_int(module.THREAD_MULTIPLE), ctypes.byref(provided))
    if failed:
        raise CommError(f"mpi: MPI_Init_thread failed with error code {failed}.")
    for comm in (module.COMM_WORLD, module.COMM_SELF):
        comm.Set_errhandler(module.ERRORS_RETURN)  # mpi4py makes exceptions of them
