"""Going on when a rank of an MPI job has failed: without MPI.

After a failure MPI promises nothing, and without ULFM (which MPICH's wheel has not) nothing of it
can be repaired: communicators hold the rank that is gone, and MPI_Finalize would wait for it. So
the ranks that are left do not touch MPI again. Under ``dtrun`` they are on one host, and share the
launcher's segment: there they agree on who they are, and go on over shared memory. Under a bare
mpiexec (or srun) the death of a rank ends the job, and there is nowhere to meet.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

from ....errors import CommError
from ...meeting import survivors
from .. import shm
from ..shm.channel import last_word
from ..shm.shrinking import exclude_ranks
from .station import Station


def shrink(
    station: Station, timeout: float, epoch: int, wait: float, exclude: Collection[int]
) -> tuple[Any, list[int]]:
    """The transport of all ranks that are left, whose operations wait for ``timeout`` seconds, and
    which ranks they had. Waits for them for ``wait`` seconds."""
    view = station.view
    if view is None:
        raise CommError(
            "shrink: MPI cannot be used any more when a rank has failed, and mpiexec ends the "
            "others; start the job with dtrun --backend mpi --min-ranks N, under which those that "
            "are left go on over shared memory, or restart it from its last checkpoint"
        )
    exclude_ranks(view, exclude)
    station.give_up()

    def last(rank: int) -> int:
        return last_word(view.base.buffer, view.base.comm_area(rank)[0])

    agreed = survivors.agree(view, station.rank, last, lambda rank: view.slot(rank).lost, wait)
    me = agreed.members.index(view.members[station.rank])
    if not me:
        sys.stderr.write(
            f"MPI cannot be used any more, since a rank has failed; the {agreed.num_ranks} ranks "
            "that are left go on over shared memory\n"
        )
    made = shm.connect(agreed, me, agreed.num_ranks, epoch, timeout)
    made.job = agreed
    return made, [view.members.index(r) for r in agreed.members]
