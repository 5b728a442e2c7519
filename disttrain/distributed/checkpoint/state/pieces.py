"""What this rank holds of a value: a plain tensor whole, a sharded one in pieces.

A sharded tensor is a DTensor, or whatever has the methods that PyTorch's planners ask for:
``size()``, ``dtype``, ``__create_chunk_list__()`` (where its pieces lie) and
``__get_tensor_shard__(index)`` (the piece at ``index.offset``, as a plain tensor). Knows no plan
and no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core import Size, Tensor
from ....errors import ConfigError
from ...tensor import DTensor, Partial
from ...tensor.api import local_of
from ...tensor.placements import local_offset
from ..metadata import MetadataIndex, TensorProperties
from .boxes import Box


@dataclass(frozen=True)
class Pieces:
    """A tensor of the global shape ``size`` of which this rank holds ``boxes``; ``whole``: it is no
    sharded tensor."""

    size: tuple[int, ...]
    properties: TensorProperties
    boxes: list[Box]
    whole: bool


def is_tensor(value: object) -> bool:
    """A tensor, whole or sharded?"""
    return isinstance(value, Tensor) or hasattr(type(value), "__create_chunk_list__")


def pieces_of(value: Any) -> Pieces | None:
    """What is held of ``value``; None if it is no tensor."""
    if isinstance(value, DTensor):
        told = TensorProperties(dtype=value.dtype, requires_grad=value.requires_grad)
        return Pieces(tuple(value.shape), told, _boxes_of(value), False)
    if hasattr(type(value), "__create_chunk_list__"):
        boxes = [(tuple(c.offsets), tuple(c.sizes)) for c in value.__create_chunk_list__()]
        told = TensorProperties(dtype=value.dtype, requires_grad=value.requires_grad)
        return Pieces(tuple(value.size()), told, boxes, False)
    if isinstance(value, Tensor):
        size = tuple(value.shape)
        told = TensorProperties.create_from_tensor(value)
        return Pieces(size, told, [((0,) * len(size), size)], True)
    return None


def _boxes_of(value: DTensor) -> list[Box]:
    """What this rank holds: one box, or nothing where it is not of the mesh."""
    spread = value.array
    place = spread.mesh.get_coordinate()
    if place is None:
        return []
    if any(isinstance(p, Partial) for p in value.placements):
        raise ConfigError(
            f"checkpoint: a DTensor of shape {list(value.shape)} is {value.placements}: every rank "
            "holds a part of a sum. Use redistribute() to Replicate() or Shard(dim) first"
        )
    at = local_offset(tuple(spread.shape), spread.mesh.ranks.shape, place, value.placements)
    return [(tuple(at), tuple(spread.local.shape))]


def piece(value: Any, name: str, offset: Any) -> Tensor:
    """The piece of ``value`` at ``offset``, as a plain tensor on the memory of ``value``."""
    if isinstance(value, DTensor):
        return local_of(value)
    if hasattr(type(value), "__create_chunk_list__"):
        value = value.__get_tensor_shard__(MetadataIndex(name, Size(offset or ())))
    return value.detach()
