"""Names of backends, which of them there are, and how much checking is asked for."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ... import context, settings
from ...comm.transports import selection
from ...errors import ConfigError
from ...trace import warn

_DEBUG = "distributed.debug_level"  # of a rank: the level that it was told
_DEFAULTS = "distributed.default_backends"  # of a rank: those of devices that its program has added


# What arrays of a device get where a program names nothing.
DEFAULT_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "mps": "gloo"}


class Carried:
    """How calls reach a backend of the program's own: filled by this package, above everything that
    such a backend needs."""

    connect: Callable[[Plugin, Any], Any]


class Plugin(NamedTuple):
    """A backend of the program's own, as ``register_backend`` was told of it; an engine of
    ``comm.engines``."""

    creator_fn: Callable[..., Any]
    extended_api: bool
    DEVICES: tuple[str, ...]

    def missing(self) -> str | None:
        """Who adds it sees to what it needs."""
        return None

    def connect(self, meeting: object) -> Any:
        """The transport that carries a group's calls to what ``creator_fn`` makes."""
        return Carried.connect(self, meeting)


class _Names(type):
    """Backends as attributes of ``Backend``, those of the program's own too."""

    @property
    def backend_list(cls) -> list[str]:
        return list(dict.fromkeys(["undefined", *selection.NAMES, *selection.plugged()]))

    @property
    def _plugins(cls) -> dict[str, Plugin]:
        return {name.upper(): found for name, found in selection.plugged().items()}

    @property
    def default_device_backend_map(cls) -> dict[str, str]:
        return default_backends()

    @property
    def backend_capability(cls) -> dict[str, list[str]]:
        names = [name for name in cls.backend_list if name != "undefined"]
        return {n: [device for device, _ in selection.parse(n).pairs] for n in names}

    def __getattr__(cls, name: str) -> str:
        if name.lower() in selection.plugged() and name.isupper():
            return name.lower()
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")


class Backend(str, metaclass=_Names):
    """A backend's name in lower case: ``Backend("GLOO") == "gloo"``.

    Raises ``ConfigError`` (a ``ValueError``) for what is no text.
    """

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    SHM, TCP, SIM, FAKE = "shm", "tcp", "sim", "fake"

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ConfigError(f"Backend: {name!r} given; the name of a backend is needed")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls,
        name: str,
        func: Callable[..., Any],
        extended_api: bool = False,
        devices: str | Sequence[str] | None = None,
    ) -> None:
        """Let ``backend=name`` mean what ``func(store, rank, world_size, timeout)`` makes: an
        object with the methods of PyTorch's ``ProcessGroup`` (``allreduce(tensors, opts)`` ...)
        that it needs, each of which returns a ``Work`` or None.

        With ``extended_api`` it is called as ``func(options, pg_options)``; ``options`` has store,
        group_rank, group_size, timeout, group_id and global_ranks_in_group. ``devices``: whose
        arrays it moves (None: "cpu" and "cuda"), and for which it is the default where there was
        none. Simulated ranks get the simulated network instead. Raises ``BackendError`` for the
        name of a backend that is not the program's own.
        """
        if devices is None:
            warn(
                f"Device capability of {name} unspecified, assuming `cpu` and `cuda`. Please "
                "specify it via the `devices` argument of `register_backend`.",
            )
            places: tuple[str, ...] = ("cpu", "cuda")
        else:
            places = (devices,) if isinstance(devices, str) else tuple(devices)
        selection.plug(name.lower(), Plugin(func, extended_api, places))
        told = context.current().slot(_DEFAULTS, dict[str, str])
        for device in () if devices is None else places:
            if device not in DEFAULT_BACKENDS:
                told.setdefault(device, name.lower())


def default_backends() -> dict[str, str]:
    """What arrays of a device get where a program names nothing."""
    return {**DEFAULT_BACKENDS, **context.current().slot(_DEFAULTS, dict[str, str])}


class BackendConfig:
    """Which backend each device gets: ``BackendConfig("cpu:gloo,cuda:nccl")``. As text the same,
    completed."""

    def __init__(self, backend: str) -> None:
        pairs = selection.parse(str(backend)).pairs
        self.device_backend_map = {device: Backend(name) for device, name in pairs}

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())

    def get_device_backend_map(self) -> dict[str, Backend]:
        return self.device_backend_map


class DebugLevel(enum.Enum):
    """What ``TORCH_DISTRIBUTED_DEBUG`` may say. Calls are always compared here; see ``strict``."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def get_debug_level() -> DebugLevel:
    """What ``set_debug_level`` or, before any call of it, ``TORCH_DISTRIBUTED_DEBUG`` says."""
    kept = context.current().slots.get(_DEBUG)
    return _from_env() if kept is None else kept


def set_debug_level(level: DebugLevel) -> None:
    """Answer ``get_debug_level`` with ``level``. Calls are compared whatever it is."""
    if not isinstance(level, DebugLevel):
        raise TypeError(f"set_debug_level: {level!r} given; needed is a DebugLevel")
    context.current().slots[_DEBUG] = level


def set_debug_level_from_env() -> None:
    """What ``TORCH_DISTRIBUTED_DEBUG`` says now."""
    set_debug_level(_from_env())


def _from_env() -> DebugLevel:
    name = settings.DEBUG_LEVEL.text().upper()
    try:
        return DebugLevel[name]
    except KeyError:
        raise ConfigError(
            "The value of TORCH_DISTRIBUTED_DEBUG must be one of OFF, INFO, or DETAIL: "
            f"{name} given"
        ) from None
