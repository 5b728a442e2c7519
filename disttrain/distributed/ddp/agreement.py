"""Replicas that begin alike: every rank's parameters have the same names, shapes and types.

Knows groups; no buckets.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import CollectiveMismatch
from ..collectives import objects
from .reducer.buckets import ParamMeta


def check_alike(group: objects.ProcessGroup, metas: Sequence[ParamMeta]) -> None:
    """Every rank holds the same parameters, or the same error goes up on every rank."""
    mine = [f"{m.name}: {m.dtype}{list(m.shape)}" for m in metas]
    everyone = objects.all_gather(group, mine)
    for rank, theirs in enumerate(everyone):
        if theirs == everyone[0]:
            continue
        pairs = zip(everyone[0], theirs, strict=False)
        first = next(((a, b) for a, b in pairs if a != b), None)
        difference = (
            f"rank 0 has {len(everyone[0])} parameters, rank {rank} has {len(theirs)}"
            if first is None
            else f"rank 0 has {first[0]}, rank {rank} has {first[1]}"
        )
        raise CollectiveMismatch(
            f"DistributedDataParallel: the ranks hold different models: {difference}; build "
            "the same module on every rank"
        )
