"""What this rank holds of a value: a plain tensor whole, a sharded one in pieces.

A sharded tensor is whatever has the methods that PyTorch's planners ask for: ``size()``, ``dtype``,
``__create_chunk_list__()`` (where its pieces lie) and ``__get_tensor_shard__(index)`` (the piece at
``index.offset``, as a plain tensor). Knows no plan and no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import Size, Tensor
from .boxes import Box
from .metadata import MetadataIndex, TensorProperties


@dataclass(frozen=True)
class Pieces:
    """A tensor of the global shape ``size`` of which this rank holds ``boxes``; ``whole``: it is no
    sharded tensor."""

    size: tuple[int, ...]
    properties: TensorProperties
    boxes: list[Box]
    whole: bool


def is_tensor(value: Any) -> bool:
    """A tensor, whole or sharded?"""
    return isinstance(value, Tensor) or hasattr(type(value), "__create_chunk_list__")


def pieces_of(value: Any) -> Pieces | None:
    """What is held of ``value``; None if it is no tensor."""
    if hasattr(type(value), "__create_chunk_list__"):
        boxes = [(tuple(c.offsets), tuple(c.sizes)) for c in value.__create_chunk_list__()]
        told = TensorProperties(dtype=value.dtype, requires_grad=value.requires_grad)
        return Pieces(tuple(value.size()), told, boxes, False)
    if isinstance(value, Tensor):
        size = tuple(value.shape)
        told = TensorProperties.create_from_tensor(value)
        return Pieces(size, told, [((0,) * len(size), size)], True)
    return None


def piece(value: Any, name: str, offset: Any) -> Tensor:
    """The piece of ``value`` at ``offset``, as a plain tensor on the memory of ``value``."""
    if hasattr(type(value), "__create_chunk_list__"):
        value = value.__get_tensor_shard__(MetadataIndex(name, Size(offset or ())))
    return value.detach()
