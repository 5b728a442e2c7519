"""What goes wrong in a simulated cluster, and at which named point.

A point is ``RANK@VERB:N``: the N-th call (from 1) of a verb that a rank makes, over all its groups;
``*`` stands for any rank, verb or number. Verbs are those of headers (``all_reduce``, ``send`` ...;
what gathers into one tensor is ``all_gather``), and ``rpc`` for a message that a rank sends to
another worker.

Pure data and its spelling on a command line; what a fault does is the fabric's affair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ....errors import ConfigError
from ...calls.header import OPS

KILL, DROP, DELAY = "kill", "drop", "delay"
RPC = "rpc"
VERBS = (*OPS, RPC)

_POINT = re.compile(r"(\*|\d+)@(\*|\w+):(\*|\d+)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_SIZES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def seconds_of(text: str) -> float:
    """``20us``, ``5ms``, ``1.5s`` or ``2`` (seconds) as seconds."""
    found = re.fullmatch(r"(\d+\.?\d*(?:e-?\d+)?)(ns|us|ms|s|)", text.strip())
    if found is None:
        raise ConfigError(f"{text!r} given; a time such as 20us, 5ms or 1.5s is needed")
    return float(found[1]) * _UNITS[found[2]]


def bandwidth_of(text: str) -> float:
    """``10GB/s``, ``200MB/s``, ``12.5GiB/s`` or ``100Gbit/s`` as bytes per second."""
    found = re.fullmatch(r"(\d+\.?\d*)\s*([KMGT]i?|)(B|bit|b)(?:/s|ps)", text.strip())
    if found is None or found[2] not in _SIZES:
        raise ConfigError(f"{text!r} given; a bandwidth such as 10GB/s or 100Gbit/s is needed")
    return float(found[1]) * _SIZES[found[2]] / (1 if found[3] == "B" else 8)


def text_of_seconds(value: float) -> str:
    """The shortest spelling that ``seconds_of`` reads back as ``value``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale or unit == "us":
            return f"{value / scale:.6g}{unit}"
    raise AssertionError(value)


@dataclass(frozen=True)
class Fault:
    """``kind`` strikes ``rank`` (None: any) at call ``number`` (None: every one) of ``verb``
    (None: any). ``seconds``: of a delay."""

    kind: str
    rank: int | None
    verb: str | None
    number: int | None
    seconds: float = 0.0

    def strikes(self, rank: int, verb: str, number: int) -> bool:
        return (
            self.rank in (None, rank)
            and self.verb in (None, verb)
            and self.number in (None, number)
        )

    def __str__(self) -> str:
        parts = ["*" if part is None else part for part in (self.rank, self.verb, self.number)]
        late = f"={text_of_seconds(self.seconds)}" if self.kind == DELAY else ""
        return f"{parts[0]}@{parts[1]}:{parts[2]}{late}"


def parse_fault(kind: str, text: str, num_ranks: int) -> Fault:
    """The fault that ``--KIND TEXT`` names, among ``num_ranks`` ranks."""
    point, equals, late = text.partition("=")
    found = _POINT.fullmatch(point.strip())
    needed = "RANK@VERB:N" + ("=TIME" if kind == DELAY else "")
    if found is None or bool(equals) != (kind == DELAY):
        raise ConfigError(f"--{kind} {text}: {needed} is needed, as 5@all_reduce:17")
    rank, verb, number = (None if part == "*" else part for part in found.groups())
    if rank is not None and int(rank) >= num_ranks:
        raise ConfigError(f"--{kind} {text}: there is no rank {rank} among {num_ranks}")
    if verb is not None and verb not in VERBS:
        raise ConfigError(f"--{kind} {text}: {verb} is no verb; one of {', '.join(VERBS)} is")
    if number == "0":
        raise ConfigError(f"--{kind} {text}: calls are counted from 1")
    if kind == DROP and verb == RPC:
        raise ConfigError(
            f"--{kind} {text}: messages between workers are a stream, of which none is lost while "
            "it lasts; kill a rank, or delay them"
        )
    return Fault(
        kind,
        None if rank is None else int(rank),
        verb,
        None if number is None else int(number),
        seconds_of(late) if equals else 0.0,
    )


def parse_straggler(text: str, num_ranks: int) -> tuple[int, float]:
    """``3=2x``: rank 3 computes twice as long."""
    found = re.fullmatch(r"(\d+)=(\d+\.?\d*)x?", text.strip())
    if found is None or int(found[1]) >= num_ranks or float(found[2]) <= 0:
        raise ConfigError(
            f"--straggler {text}: RANK=FACTOR is needed, as 3=2x, with a rank below {num_ranks}"
        )
    return int(found[1]), float(found[2])


@dataclass(frozen=True)
class Struck:
    """What happens at one call."""

    kill: Fault | None = None
    drop: Fault | None = None
    delay: float = 0.0


@dataclass
class Calendar:
    """Counts the calls of every rank, and says what strikes each."""

    faults: tuple[Fault, ...] = ()
    counts: dict[tuple[int, str], int] = field(default_factory=dict)

    def next(self, rank: int, verb: str) -> Struck:
        """``rank`` makes its next call of ``verb``."""
        number = self.counts[rank, verb] = self.counts.get((rank, verb), 0) + 1
        if not self.faults:
            return _NOTHING
        found = [fault for fault in self.faults if fault.strikes(rank, verb, number)]
        return Struck(
            next((f for f in found if f.kind == KILL), None),
            next((f for f in found if f.kind == DROP), None),
            sum(f.seconds for f in found if f.kind == DELAY),
        )


_NOTHING = Struck()


def points_of(counts: Mapping[tuple[int, str], int]) -> list[tuple[int, str, int]]:
    """Every point of a run whose calls were counted: (rank, verb, number)."""
    return [
        (rank, verb, number)
        for (rank, verb), most in sorted(counts.items())
        for number in range(1, most + 1)
    ]


def flags_of(faults: Iterable[Fault]) -> list[str]:
    """The command line that asks for ``faults``."""
    return [word for fault in faults for word in (f"--{fault.kind}", str(fault))]
