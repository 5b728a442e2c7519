"""Copies of tensors in a memory format, and questions about how their memory lies."""

from __future__ import annotations

import math
from typing import Any

from numpy import ndarray

from ....backends.device.array import DeviceArray
from ....core.annotations import Format
from ....core.gate import Tracer
from ....core.tensor import Tensor
from ....core.types.memory_format import (
    as_format,
    contiguous_format,
    inferred,
    inverse,
    is_dense,
    memory_format,
    order_of,
    preserve_format,
    suggested,
)
from ....errors import ConfigError
from ...primitives import elementwise as el
from ...primitives.views import permute

_PLAIN = (ndarray, DeviceArray)


def stride(input: Tensor, dim: int | None = None) -> Any:
    """Steps between neighbours, in elements."""
    found = input.steps() if isinstance(input, Tracer) else input.array.strides
    item = input.itemsize
    steps = tuple(s // item for s in found)
    if 0 in input.shape:  # numpy's mean nothing then
        sizes = [max(n, 1) for n in input.shape]
        steps = tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
    return steps if dim is None else steps[dim]


def _in_order(input: Tensor) -> bool:
    """Whether ``input`` is an array of the host whose memory is in order: the commonest."""
    array = input.__dict__.get("array")
    return array.__class__ is ndarray and array.flags.c_contiguous


def _unknown(input: Tensor) -> bool:
    """Whether nothing is known of how it lies: shapes without data, values inside a transform."""
    return input.is_meta or (input.__class__ is not Tensor and hasattr(input, "interp"))


def is_contiguous(input: Tensor, memory_format: Format | None = None) -> bool:
    """Whether its memory is dense, in the order of ``memory_format``."""
    order = as_format("is_contiguous", memory_format, contiguous_format).order
    if order is None:
        if isinstance(input, Tracer) and not input.is_meta:
            shape = tuple(input.shape)
            return 0 in shape or is_dense(shape, stride(input), tuple(range(len(shape))))
        return True if _unknown(input) else input.array.flags.c_contiguous
    if len(order) != input.ndim or _unknown(input):
        return False
    return is_dense(tuple(input.shape), stride(input), order)


def _seems_plain(input: Tensor) -> bool:
    return _unknown(input) or is_contiguous(input)


def suggest(input: Tensor) -> memory_format:
    """The format that ``input`` goes by, also where it is a part of other memory."""
    if _unknown(input) or input.array.flags.c_contiguous:
        return contiguous_format
    return suggested(tuple(input.shape), stride(input))


def kept_order(where: str, input: Tensor, given: Any) -> tuple[int, ...] | None:
    """In which order of dimensions a new tensor like ``input`` lies; None: as they come."""
    if given is None and _in_order(input):
        return None
    layout = as_format(where, given, preserve_format)
    if layout is contiguous_format or (layout is preserve_format and _seems_plain(input)):
        return None
    if layout is preserve_format:
        return inferred(tuple(input.shape), stride(input))
    return order_of(where, layout, input.ndim)


def copy_in_order(input: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """A recorded copy whose memory is dense in this order."""
    if order is None or order == tuple(range(len(order))):
        return el.copy(input)
    return permute(el.copy(permute(input, dims=order)), dims=inverse(order))


def clone(input: Tensor, *, memory_format: Format | None = None) -> Tensor:
    """A copy with its own memory, recorded; in the order of the input unless ``memory_format`` says
    another one."""
    if memory_format is None and _in_order(input):
        return el.copy(input)
    return copy_in_order(input, kept_order("clone", input, memory_format))


def contiguous(input: Tensor, memory_format: Format | None = None) -> Tensor:
    """The tensor itself if its memory is in order, else a copy."""
    if (memory_format is None and _in_order(input)) or is_contiguous(input, memory_format):
        return input
    layout = as_format("contiguous", memory_format, contiguous_format)
    return copy_in_order(input, order_of("contiguous", layout, input.ndim))


def in_format(input: Tensor, memory_format: Format, fresh: bool) -> Tensor:
    """What ``to(memory_format=...)`` gives: the tensor itself where it goes by that format, which
    new memory (``fresh``) does only where it is dense in it."""
    layout = as_format("to", memory_format, preserve_format)
    if layout is preserve_format or (not fresh and suggest(input) is layout):
        return input
    return contiguous(input, layout) if fresh else clone(input, memory_format=layout)


def following(out: Tensor, *givers: Tensor) -> Tensor:
    """``out`` in channels_last order where one of ``givers`` (which may lack the batch) lies so,
    else in order."""
    for like in givers:
        array = like.__dict__.get("array")
        if array.__class__ not in _PLAIN or array.flags.c_contiguous:
            continue
        shape, steps = tuple(array.shape), stride(like)
        if len(shape) == out.ndim - 1:
            most = max((n * s for n, s in zip(shape, steps, strict=True)), default=1)
            shape, steps = (1, *shape), (most, *steps)
        layout = suggested(shape, steps)
        if layout.order is not None and len(layout.order) == out.ndim:
            return contiguous(out, layout)
    return contiguous(out)


def dim_order(input: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions in the order in which they lie in memory, the one whose neighbours lie
    furthest apart first. ``ambiguity_check``: several orders would be right is an error."""
    shape, steps = tuple(input.shape), stride(input)
    long = [step for n, step in zip(shape, steps, strict=True) if n != 1]
    if ambiguity_check and (len({*long}) < len(long) or len(long) < len(shape)):
        raise ConfigError(
            f"dim_order: the order of a shape of {list(shape)} with strides {list(steps)} is "
            "ambiguous"
        )
    return tuple(range(len(shape))) if is_contiguous(input) else inferred(shape, steps)


def is_set_to(input: Tensor, tensor: Tensor) -> bool:
    """Whether both refer to the same memory, laid out alike."""
    return (
        input.data_ptr() == tensor.data_ptr()
        and tuple(input.shape) == tuple(tensor.shape)
        and stride(input) == stride(tensor)
        and input.dtype is tensor.dtype
    )


__all__ = ["clone"]
