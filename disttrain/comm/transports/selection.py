"""Which transport a group gets: the one place that reads ``backend=`` and chooses.

An *engine* is a module with a transport and three names:

    DEVICES                      the devices whose arrays it moves
    missing() -> str | None      what it needs and this process does not have
    connect(meeting)             the transport of the meeting's ranks (see ``meeting``)

To add one, write a line into ``ENGINES``; a program adds its own with ``plug``. Modules are loaded
when they are chosen, so that what a transport is made of costs nobody else anything.
``docs/transports.md`` says what each can do.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

from ... import context
from ...backends.device.platform import Platform
from ...errors import BackendError, ConfigError
from ..calls.transport import Transport
from ..group.staged import Staged
from ..job.worker_env import TLS, WorkerEnv
from ..meeting.meeting import Meeting
from ..store import Store

ENGINES = {  # backend -> its module in this package
    "shm": "shm.engine",
    "mpi": "mpi.engine",
    "sim": "sim.engine",
    "tcp": "tcp.engine",
    "fake": "fake.engine",
    "nccl": "nccl.engine",
}
BEST = "gloo"  # as PyTorch's programs say: whatever is best between the CPUs that there are
# What PyTorch's programs may name, and why it is not here.
_ELSEWHERE = {
    "xccl": "it moves arrays between GPUs of Intel's, which this version has no arrays of",
    "ucc": "this version does not have it",
}
NAMES = (BEST, *dict.fromkeys([*ENGINES, *_ELSEWHERE]))
_DEVICES_OF_BEST = ("cpu", "cuda")
DEVICE_ONLY = ("nccl",)  # they have the CPU's beside them
_DEFAULT_OF = {"cuda": "nccl"}
AROUND = "comm.connect"  # of a rank: what connects in our place, ``(own, backend, meeting)``
_PLUGGED = "comm.engines"  # of a rank: the engines that its program has added, by name
_NAME = re.compile(r"[a-z0-9_]+")
_PAIR = re.compile(r"([a-z_][a-z0-9_]*):([a-z0-9_]+)")


@dataclass(frozen=True)
class Backend:
    """What a program wants. ``text``: as it said it, in lower case, ``undefined`` where it did not
    say anything; ``pairs``: (device, name of the backend)."""

    text: str
    pairs: tuple[tuple[str, str], ...]

    @property
    def cpu(self) -> str:
        """The backend for arrays of the CPU; where none is named, the first one that has them, or
        the best."""
        named = dict(reversed(self.pairs)).get("cpu")
        if named is not None:
            return named
        return next((name for _, name in self.pairs if name not in DEVICE_ONLY), BEST)

    def of(self, device: str) -> str | None:
        """The backend for arrays of ``device``, where the program names one; what PyTorch takes
        where it names none at all."""
        if self.text == "undefined":
            return _DEFAULT_OF.get(device)
        return dict(self.pairs).get(device)

    @property
    def config(self) -> str:
        """ "cpu:gloo,cuda:nccl"."""
        return ",".join(f"{device}:{name}" for device, name in self.pairs)


def plugged() -> dict[str, Any]:
    """The engines that this rank's program has added."""
    return context.current().slot(_PLUGGED, dict[str, Any])


def plug(name: str, engine: object) -> None:
    """Let ``backend=name`` (in lower case) choose ``engine``: an object with the names that a
    module has (see above). Raises ``BackendError`` for a name of ``NAMES``."""
    if name in NAMES or name == "undefined" or _NAME.fullmatch(name) is None:
        raise BackendError(
            f"backend {name!r} was to be added; needed is a name of lower-case letters, digits and "
            f"_ that is none of {', '.join(NAMES)}"
        )
    plugged()[name] = engine


def parse(backend: str | None) -> Backend:
    """Read ``backend=``: a name, or one for each device ("cpu:shm,cuda:nccl"). Raises
    ``BackendError`` for what is neither."""
    text = "undefined" if backend is None else str(backend).strip().lower()
    if text == "undefined":
        return Backend(text, (("cpu", BEST),))
    if ":" not in text:
        if text not in NAMES and text not in plugged():
            raise _unknown(text, text)
        return Backend(text, tuple((device, text) for device in _devices(text)))
    pairs: dict[str, str] = {}
    for part in text.split(","):
        match = _PAIR.fullmatch(part.strip())
        if match is None:
            raise BackendError(
                f"init_process_group: backend={text!r}: {part!r} is no pair of a device and a "
                "backend; needed is one name, or pairs such as 'cpu:shm,cuda:nccl'"
            )
        device, name = match.groups()
        if name not in NAMES and name not in plugged():
            raise _unknown(text, name)
        if device in pairs:
            raise BackendError(
                f"init_process_group: backend={text!r} names {device} twice; needed is one backend "
                "for each device"
            )
        pairs[device] = name
    return Backend(text, tuple(pairs.items()))


def _devices(name: str) -> tuple[str, ...]:
    if name == BEST:
        return _DEVICES_OF_BEST
    if name in ENGINES:
        return tuple(_load(name).DEVICES)
    return tuple(plugged()[name].DEVICES) if name in plugged() else ("cuda",)


def _unknown(text: str, name: str) -> BackendError:
    return BackendError(
        f"init_process_group: backend={text!r}: there is no backend {name!r}; needed is one of "
        f"{', '.join((*NAMES, *plugged()))}, or one for each device, such as 'cpu:shm,cuda:nccl'"
    )


def missing(name: str) -> str | None:
    """Why the backend ``name`` cannot be used in this process; None where it can."""
    if name == BEST:
        return None
    if name in ENGINES or name in plugged():
        return _load(name).missing()
    return _ELSEWHERE.get(name, "there is no such backend")


def connect(backend: Backend, meeting: Meeting) -> Transport:
    """The transport of the meeting's ranks, once all have come. All ranks name the same backend.

    Raises ``BackendError`` where it cannot be used here, before anybody is waited for; other
    ``ConfigError``s, once the ranks know of each other, on all of them.
    """
    around = context.thread.rank.slots.get(AROUND)
    try:
        if around is not None:
            made: Transport = around(_connect, backend, meeting)
            return made
        return _connect(backend, meeting)
    except ConfigError:
        meeting.part()
        raise


def _connect(backend: Backend, meeting: Meeting) -> Transport:
    meeting.wanted = backend.cpu
    if not _is_simulated() and not meeting.place.fake:
        _check_devices(backend)
    name = choose(backend.cpu, meeting)
    why = "it moves arrays of devices only" if name in DEVICE_ONLY else missing(name)
    if why is not None and backend.cpu == BEST:  # what we have chosen ourselves
        raise BackendError(_without_mpi("init_process_group", meeting.place, why, backend.text))
    if why is not None:
        raise BackendError(
            f"init_process_group: backend={backend.text!r}: {name} cannot be used here: {why}. "
            f"Use backend={BEST!r}, which takes the best way that there is between CPUs"
        )
    if name not in ("shm", "sim") and meeting.taken_over() is not None:
        raise BackendError(
            f"init_process_group: rank {meeting.rank} was started anew while the others go on, and "
            f"backend={backend.text!r} would be {name} here, which nobody can join later. "
            f"Use backend={BEST!r} under --replace-ranks"
        )
    transport: Transport = _load(name).connect(meeting)
    transport.between = between
    if transport.sealed:
        try:
            _check_sealed(backend)
        except BackendError:
            transport.abandon()
            raise
    return transport


def _check_sealed(backend: Backend) -> None:
    """Where what goes between hosts is to be encrypted, a library that does not do it is not
    used. All ranks know the same."""
    for _, name in backend.pairs:
        if name in DEVICE_ONLY:
            raise BackendError(
                f"init_process_group: backend={backend.text!r}: {name} does not encrypt what it "
                f"sends between hosts, and {TLS}=1 asks for TLS. Use backend={BEST!r}, which "
                f"encrypts and moves arrays of devices by way of the host, or unset {TLS} on all "
                "ranks"
            )


def _check_devices(backend: Backend) -> None:
    """Where a program names a backend of devices and nothing else, that can be used here."""
    for device, name in backend.pairs:
        why = missing(name) if name in DEVICE_ONLY and device != "cpu" else None
        if why is not None and len(backend.pairs) == 1:
            raise BackendError(
                f"init_process_group: backend={backend.text!r}: {name} cannot be used here: {why}. "
                f"Use backend={BEST!r}, which moves arrays of {device} by way of the host"
            )


def between(backend: str, cpu: Transport, platform: Platform) -> Transport:
    """What moves a group's arrays of ``platform``, beside ``cpu``, which moves those of the host.
    ``backend``: what the program called the group's. Nobody is waited for."""
    name = parse(backend).of(platform.kind)
    if cpu.sealed:
        _check_sealed(parse(backend))
        return Staged(cpu, platform)
    together = not _is_simulated() or platform.ranks_in_threads
    if name in DEVICE_ONLY and together and (backend != "undefined" or missing(name) is None):
        return _load(name).over(cpu, platform)
    return Staged(cpu, platform)


def store_by_mpi(where: str, place: WorkerEnv, timeout: float) -> Store:
    """A store for all ranks that MPI has started, which hear of it over MPI. All of them call it.

    ``where``: the function that needs it, for messages. Raises ``BackendError`` where this process
    has no MPI, ``ConfigError`` where the world is not MPI's.
    """
    why = missing("mpi")
    if why is not None:
        raise BackendError(_without_mpi(where, place, why))
    store: Store = _load("mpi").open_store(where, place, timeout)
    return store


def _without_mpi(where: str, place: WorkerEnv, why: str, given: str = "undefined") -> str:
    """What to say where ranks that MPI has started cannot meet through it."""
    said = "" if given == "undefined" else f"backend={given!r}: "
    return (
        f"{where}: {said}MPI has started this process as rank {place.rank} of {place.world_size}, "
        f"no MASTER_PORT is set, so the ranks meet through MPI, but {why}. "
        "Or set MASTER_ADDR and MASTER_PORT on every rank, where they then meet without MPI"
    )


def choose(wanted: str, meeting: Meeting) -> str:
    """Which engine a meeting gets whose ranks want ``wanted``. Simulated ranks have met already,
    and one that was started without peers has nobody to meet, whatever the program says."""
    if _is_simulated():
        return "sim"
    if meeting.place.fake:
        return "fake"
    if wanted != BEST:
        return wanted
    if meeting.place.by_mpi and meeting.open_store is None:
        return "mpi"
    if meeting.on_one_host():
        return "shm"
    return "mpi" if meeting.place.by_mpi and missing("mpi") is None else "tcp"


def is_part(backend: Backend, whole: Transport) -> bool:
    """Whether a group of some ranks of the transport ``whole`` that wants ``backend`` can be split
    off from it."""
    if _is_simulated() or whole.kind == "fake":
        return True
    return whole.divides and backend.cpu in (BEST, whole.kind)


def _is_simulated() -> bool:
    return context.current().waiter.simulated


def _load(name: str) -> Any:
    if name in plugged():
        return plugged()[name]
    return importlib.import_module(f".{ENGINES[name]}", __package__)
