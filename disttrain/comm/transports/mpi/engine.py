"""How ranks that MPI has started come to a transport (see ``selection``).

Where nobody says which, ranks of one host get shared memory; MPI only brings them together.
``backend="mpi"`` is MPI itself, also inside a host.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import numpy as np

from .... import context
from ....errors import ConfigError
from ...calls.transport import Transport
from ...job import slurm
from ...job.worker_env import TLS, WorkerEnv, fixed_order_wanted
from ...meeting.meeting import Meeting, check_encryption, host_id
from ...meeting.survivors import as_view
from ...store import Store, TCPStore
from ...store.token_file import read_token_file
from .. import shm
from . import ending, library
from .connect import connect as connect_comm
from .station import Station, station

DEVICES = ("cpu",)
_TAG, _STORE_TAG = 2, 3


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
    on_one_host = len(set(hosts(here, comm))) == 1
    if not on_one_host:
        _refuse_tls(here, comm, meeting.place.tls)
    if meeting.wanted != "mpi" and on_one_host:
        if segment is not None and meeting.on_segment():
            return shm.connect(segment, comm.rank, comm.size, meeting.epoch, meeting.timeout)
        store = Told(here, comm)
        transport = shm.connect_by_store(store, comm.rank, comm.size, timeout=meeting.timeout)
        context.current().at_end.append(transport.hub.finish)
        return transport
    fixed = fixed_order_wanted()
    fixed = on_one_host if fixed is None else fixed
    return connect_comm(here, comm, timeout=meeting.timeout, epoch=meeting.epoch, fixed_order=fixed)


def _refuse_tls(here: Station, comm: Any, tls: bool) -> None:
    """MPI does not encrypt, so nothing is sent where that was asked for. All ranks learn of it."""
    wanted = np.empty(comm.size, np.uint8)
    request = comm.Iallgather([np.array([tls], np.uint8), here.MPI.BYTE], [wanted, here.MPI.BYTE])
    context.wait_until(request.Test, lambda: "all ranks to say whether they want TLS")
    check_encryption([bool(asked) for asked in wanted])
    if tls:
        raise ConfigError(
            f"init_process_group: {TLS}=1 asks for TLS between hosts, and MPI does not encrypt "
            "what it sends. Let the ranks meet without MPI, by MASTER_ADDR, MASTER_PORT and "
            f"DISTTRAIN_TOKEN_FILE on each of them (docs/hosts.md), or unset {TLS} on all"
        )


def open_store(where: str, place: WorkerEnv, timeout: float) -> Store:
    """A store in the process of rank 0, for all ranks of the job: each of them calls it. Between
    hosts it needs the token file, as every listener that others than this host can reach."""
    here = station(timeout)
    ending.install(here)
    if (place.rank, place.world_size) != (here.rank, here.size):
        raise ConfigError(
            f"{where}: rank={place.rank} and world_size={place.world_size} given, but for MPI this "
            f"is rank {here.rank} of {here.size}. Give neither; or set MASTER_ADDR and MASTER_PORT "
            "on every rank, where some of them may meet, too"
        )
    token = None if place.token_file is None else read_token_file(place.token_file)
    if token is None and len(set(hosts(here, here.world))) > 1:
        raise ConfigError(
            f"{where}: the ranks are on several hosts, and DISTTRAIN_TOKEN_FILE is not set; needed "
            "is a file with the job's token on each of them (docs/hosts.md)"
        )
    told, key = Told(here, here.world, _STORE_TAG), "where the store is"
    if here.rank:
        host, port = json.loads(told.get(key))
        return TCPStore(host, port, None, False, timeout, token=token)
    host = slurm.LOOPBACK if token is None else os.uname().nodename
    store = TCPStore(host, 0, None, True, timeout, False, token=token)
    told.set(key, json.dumps([host, store.port]).encode())
    return store


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

    def __init__(self, here: Station, comm: Any, tag: int = _TAG) -> None:
        self._here, self._comm, self._tag = here, comm, tag
        self._sending: list[Any] = []

    def set(self, key: str, value: bytes) -> None:
        byte = self._here.MPI.BYTE
        sends = [self._comm.Isend([value, byte], r, self._tag) for r in range(1, self._comm.size)]
        done = self._here.MPI.Request.Testall
        context.wait_until(lambda: done(sends), lambda: f"{key} to be read")

    def get(self, key: str) -> bytes:
        MPI, found = self._here.MPI, bytearray()

        def came() -> bool:
            status = MPI.Status()
            message = self._comm.Improbe(0, self._tag, status)
            if message is not None:
                found.extend(bytes(status.Get_count(MPI.BYTE)))
                message.Recv([found, MPI.BYTE])
            return message is not None

        context.wait_until(came, lambda: f"{key} from rank 0")
        return bytes(found)
