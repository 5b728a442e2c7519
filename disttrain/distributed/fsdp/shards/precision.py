"""What a user chooses for the units of ``fully_shard``: types and where shards are kept.

Knows element types; no unit and no group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The types of a unit's full weights, of its reduction, and of what forward takes and gives.

    ``param_dtype``: the type in which weights are gathered and used (None: their own).
    ``reduce_dtype``: the type in which gradients are summed (None: the parameter's own).
    ``output_dtype``: floating outputs of forward are cast to it. ``cast_forward_inputs``: whether
    floating inputs are cast to ``param_dtype``.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Shards stay where the parameters are."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Shards, gradients and optimizer state stay in the host's memory. On a machine whose
    parameters are there already nothing changes."""

    pin_memory: bool = True


@dataclass
class DiskOffloadPolicy(OffloadPolicy):
    """Shards lie in a file per unit and rank under ``folder``, mapped into memory: the system
    writes out what is not in use. The files are unlinked at once, so none is left behind."""

    folder: str = "."


@dataclass(frozen=True)
class DataParallelMeshDims:
    """Which axes of a mesh with more axes ``fully_shard`` is to use: ``shard`` and ``replicate``
    name one each, or several to be taken as one."""

    shard: str | tuple[str, ...] | None = None
    replicate: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.shard is None and self.replicate is None:
            raise ValueError(
                "At least one of shard or replicate must be set in DataParallelMeshDims"
            )

    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The axes to replicate over, and those to shard over."""
        return _tuple(self.replicate), _tuple(self.shard)


def _tuple(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)
