"""The average of parameters over ranks, in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ....comm.group.group import ProcessGroup
from ....core.tensor import Tensor
from ....core.writes import touched
from ....nn import Parameter
from ...groups.state import GroupMember, group_or_default

CHUNK_BYTES = 25 << 20


def average_parameters(params: Iterable[Tensor], process_group: ProcessGroup | None) -> None:
    """Give every parameter its average over the ranks of ``process_group`` (None: all), in the
    memory where it lies. Few large messages travel; a rank outside the group does nothing."""
    if process_group is GroupMember.NON_GROUP_MEMBER:
        return
    group = group_or_default(process_group)
    by_type: dict[np.dtype, list[Tensor]] = {}
    for p in params:
        by_type.setdefault(p.array.dtype, []).append(p)
    for members in by_type.values():
        batch: list[Tensor] = []
        for p in members:
            if batch and sum(q.array.nbytes for q in batch) + p.array.nbytes > CHUNK_BYTES:
                _average(group, batch)
                batch = []
            batch.append(p)
        _average(group, batch)


def _average(group: ProcessGroup, batch: list[Tensor]) -> None:
    kind = batch[0].array.dtype
    flat = group.empty(sum(p.array.size for p in batch), kind)
    places, at = [], 0
    for p in batch:
        n = p.array.size
        places.append((p, flat[at : at + n].reshape(p.array.shape)))
        at += n
    for p, place in places:
        np.divide(p.array, kind.type(group.size), out=place)
    group.all_reduce(flat)
    for p, place in places:
        p.array[...] = place
        touched(p)


def get_params_to_average(params: Iterable[Any]) -> list[Tensor]:
    """The parameters (of a model, or of the groups of an optimizer) that have a gradient."""
    found: list[Any] = []
    for given in params:
        if isinstance(given, Parameter):
            found.append(given)
        elif isinstance(given, dict):
            found += given["params"]
        else:
            raise NotImplementedError(
                f"Parameter input of type {type(given)} is not supported; give the parameters of a "
                "model or the param_groups of an optimizer"
            )
    return [p for p in found if p.grad is not None]


def average_parameters_or_parameter_groups(
    params: Iterable[Any], process_group: ProcessGroup | None
) -> None:
    """``average_parameters`` of those that have a gradient."""
    average_parameters(get_params_to_average(params), process_group)


__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]
