"""This library and PyTorch, by one set of names, on one device in one process."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import disttrain as dt

from ..journal import Job
from ..timing import in_turns


def libraries(job: Job) -> dict[str, Any]:
    """ "disttrain", and "PyTorch" where it is there with a device."""
    found: dict[str, Any] = {"disttrain": dt}
    if not job.real:
        job.journal.note("no times of PyTorch: this is a rehearsal without a device")
        return found
    if importlib.util.find_spec("torch") is None:
        job.journal.note("PyTorch is not installed here: nothing to compare with")
        return found
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        job.journal.note(f"PyTorch {torch.__version__} sees no device")
        return found
    job.journal.note(f"beside PyTorch {torch.__version__}")
    return {**found, "PyTorch": torch}


def wait() -> None:
    """Until the device has done all: it is one device, whoever gave it work."""
    dt.cuda.synchronize()


def compare(
    job: Job,
    name: str,
    ways: Mapping[str, Callable[[], Any]],
    unit: str,
    of: Callable[[float], float],
    bar: str = "",
    **how: Any,
) -> None:
    """One case: time the ways in turns, and tell the number that ``of`` makes of seconds."""

    def measured() -> None:
        found = {key: of(seconds) for key, seconds in in_turns(ways, wait, **how).items()}
        mine = found.pop("disttrain")
        more: dict[str, Any] = {"beside": found} if found else {}
        job.journal.number(name, mine, unit, bar=bar, **more)

    job.case(name, measured)
