"""What a test asks for by ``@pytest.mark.ranks(...)``, as data. Imports nothing of disttrain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SIGNATURE = (
    "ranks(n, backend=None, seeds=None, faults=(), simulate=False, timeout=None): run the test on "
    "n ranks, each a process forked when the fixtures are ready, or simulated; see docs/testing.md"
)
_NAMES = ("backend", "seeds", "faults", "simulate", "timeout")
_MOST_RANKS = 4096


class MarkError(Exception):
    """The mark's arguments make no sense."""


@dataclass(frozen=True)
class Ask:
    """``seeds``: of simulated ranks, tried one after the other; ``cluster``: fields of
    ``simulated.flags.Flags``; ``timeout``: None, where the mark says nothing."""

    num_ranks: int
    backend: str | None = None
    seeds: tuple[int, ...] = (0,)
    faults: tuple[str, ...] = ()
    simulated: bool = False
    cluster: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None


def read_mark(args: tuple, kwargs: Mapping[str, Any]) -> Ask:
    """The mark's arguments; ``MarkError`` where they make no sense."""
    if len(args) > 1 or (args and "n" in kwargs):
        _refuse(f"{len(args)} positional arguments", "one number of ranks, the rest by name")
    named = dict(kwargs)
    n = args[0] if args else named.pop("n", None)
    unknown = [name for name in named if name not in _NAMES]
    if unknown:
        _refuse(f"{unknown[0]}=", f"one of {', '.join(f'{name}=' for name in _NAMES)}")
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= _MOST_RANKS:
        _refuse(repr(n), f"a number of ranks from 1 to {_MOST_RANKS}")
    backend, timeout = named.get("backend"), named.get("timeout")
    if backend is not None and not isinstance(backend, str):
        _refuse(f"backend={backend!r}", "the name that init_process_group takes, or None")
    if timeout is not None and not _is_time(timeout):
        _refuse(f"timeout={timeout!r}", "seconds, more than 0")
    seeds, simulate = named.get("seeds"), named.get("simulate", False)
    if seeds is not None and simulate is False:
        if "simulate" in named:
            _refuse("seeds= with simulate=False", "simulated ranks: real ones have no schedule")
        simulate = True
    if not isinstance(simulate, (bool, Mapping)):
        _refuse(f"simulate={simulate!r}", "True, or a dict such as {'hosts': 2}")
    return Ask(
        n,
        backend,
        _seeds(seeds),
        _faults(named.get("faults", ())),
        simulate is not False,
        dict(simulate) if isinstance(simulate, Mapping) else {},
        None if timeout is None else float(timeout),
    )


def _is_time(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and value > 0 and math.isfinite(value)


def _seeds(given: Any) -> tuple[int, ...]:
    """``seeds=20`` are 0 to 19."""
    if given is None:
        return (0,)
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return tuple(range(given))
    try:
        seeds = tuple(given)
    except TypeError:
        seeds = ()
    if not seeds or not all(isinstance(s, int) and not isinstance(s, bool) for s in seeds):
        _refuse(f"seeds={given!r}", "how many to try, at least 1, or some seeds")
    return seeds


def _faults(given: Any) -> tuple[str, ...]:
    faults = (given,) if isinstance(given, str) else tuple(given)
    for fault in faults:
        if not isinstance(fault, str) or len(fault.split()) != 2:
            _refuse(f"faults={given!r}", "texts such as 'kill 1@all_reduce:2'")
    return faults


def _refuse(given: str, needed: str) -> None:
    raise MarkError(f"@pytest.mark.ranks: {given} given; {needed} is needed")
