"""Regions: modules inside a function that runs eagerly, each compiled for itself.

Some modules cannot be captured with what stands around them, but say which parts of them can (by a
method ``__regions__``: units of FSDP, whose weights are gathered around the part's own forward).
Where such a one is in reach of a function that is not captured, the function runs as Python, and
while it does the forwards of those parts are compiled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .modules import Forward, Twin


def regions_of(modules: Iterable[Any]) -> list[Any]:
    """The parts of ``modules``, each once; what the program itself has compiled is none."""
    found: dict[int, Any] = {}
    for m in modules:
        if hasattr(type(m), "__regions__"):
            found.update((id(part), part) for part in m.__regions__())
    return [part for part in found.values() if not isinstance(part, Twin)]


class Regions:
    """Parts of a function, with what runs instead of their forwards. ``compiled`` makes that."""

    def __init__(self, modules: list[Any], compiled: Callable[[Forward], Any]) -> None:
        self.runs = [(m, compiled(Forward(m))) for m in modules]

    def __call__(self, fn: Callable, args: tuple, kwargs: dict) -> Any:
        """``fn(*args, **kwargs)`` with compiled parts. (A forward of a module's own stays.)"""
        taken = [(m.__dict__, run) for m, run in self.runs if "forward" not in m.__dict__]
        for space, run in taken:
            space["forward"] = run
        try:
            return fn(*args, **kwargs)
        finally:
            for space, _ in taken:
                space.pop("forward", None)

    def count(self) -> str:
        """How many there are, in words."""
        count = len(self.runs)
        return f" ({count} {'part' if count == 1 else 'parts'} of it compiled)"

    def explain(self) -> list[str]:
        """What became of each part."""
        lines = [line for _, run in self.runs for line in run.explain().splitlines()]
        return [f"  inside: {line}" for line in lines]
