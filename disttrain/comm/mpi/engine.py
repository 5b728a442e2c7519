"""How ranks that MPI has started come to a transport (see ``engines``).

Where nobody says which, ranks of one host get shared memory; MPI only brings them together.
``backend="mpi"`` is MPI itself, also inside a host.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ... import context
from ...errors import ConfigError
from .. import shm
from ..meeting import Meeting, host_id
from ..survivors import as_view
from ..transport import Transport
from ..worker_env import fixed_order_wanted
from . import ending, library
from .connect import connect as connect_comm
from .station import Station, station

DEVICES = ("cpu",)
_TAG = 2


def missing() -> str | None:
    """What this process lacks."""
    return library.missing()


def connect(meeting: Meeting) -> Transport:
    """Over MPI, or over memory that all ranks share."""
    segment = meeting.segment
    if segment is not None and meeting.on_segment() and as_view(segment).round:
        # a rank has failed, so there is no MPI any more (``shrinking``)
        return shm.connect(segment, meeting.rank, meeting.size, meeting.epoch, meeting.timeout)
    here = station(meeting.timeout)
    ending.install(here)
    comm = _members(here, meeting)
    if meeting.wanted != "mpi" and len(set(hosts(here, comm))) == 1:
        if segment is not None and meeting.on_segment():
            return shm.connect(segment, comm.rank, comm.size, meeting.epoch, meeting.timeout)
        store = Told(here, comm)
        transport = shm.connect_by_store(store, comm.rank, comm.size, timeout=meeting.timeout)
        context.current().at_end.append(transport.hub.finish)
        return transport
    fixed = fixed_order_wanted()
    if fixed is None:
        fixed = len(set(hosts(here, comm))) == 1
    return connect_comm(here, comm, timeout=meeting.timeout, epoch=meeting.epoch, fixed_order=fixed)


def _members(here: Station, meeting: Meeting) -> Any:
    """The communicator of the meeting's ranks, numbered as the meeting does."""
    if meeting.ranks is not None:
        group = here.world.group.Incl(list(meeting.ranks))
        return here.world.Create_group(group, _TAG)
    if meeting.size != here.size:
        raise ConfigError(
            f"init_process_group: backend='mpi': MPI has started {here.size} ranks, but the world "
            f"has {meeting.size}. Start the program with mpiexec -n {meeting.size}, or dtrun "
            f"--backend mpi --nproc-per-node {meeting.size} (under Slurm: srun --mpi=pmi2, or "
            "pmix), and give no rank= or world_size="
        )
    if meeting.rank != here.rank:
        raise ConfigError(
            f"init_process_group: backend='mpi': this is rank {here.rank} for MPI, but rank "
            f"{meeting.rank} was given; give no rank=, and unset RANK"
        )
    return here.world


def hosts(here: Station, comm: Any) -> list[bytes]:
    """The host of every rank of ``comm``, as a hash. All its ranks call it."""
    mine = np.frombuffer(hashlib.blake2b(host_id().encode(), digest_size=16).digest(), np.uint8)
    table = np.empty((comm.size, mine.size), np.uint8)
    request = comm.Iallgather([mine.copy(), here.MPI.BYTE], [table, here.MPI.BYTE])
    context.wait_until(request.Test, lambda: "the hosts of all ranks")
    return [row.tobytes() for row in table]


class Told:
    """As much of a store as ranks need that find shared memory: rank 0 tells all others."""

    def __init__(self, here: Station, comm: Any) -> None:
        self._here, self._comm = here, comm
        self._sending: list[Any] = []

    def set(self, key: str, value: bytes) -> None:
        byte = self._here.MPI.BYTE
        sends = [self._comm.Isend([value, byte], r, _TAG) for r in range(1, self._comm.size)]
        done = self._here.MPI.Request.Testall
        context.wait_until(lambda: done(sends), lambda: f"{key} to be read")

    def get(self, key: str) -> bytes:
        MPI, found = self._here.MPI, bytearray()

        def came() -> bool:
            status = MPI.Status()
            message = self._comm.Improbe(0, _TAG, status)
            if message is not None:
                found.extend(bytes(status.Get_count(MPI.BYTE)))
                message.Recv([found, MPI.BYTE])
            return message is not None

        context.wait_until(came, lambda: f"{key} from rank 0")
        return bytes(found)
