"""Public functions that make tensors from sizes and numbers. Torch's names."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....backends.array_kinds import ArrayKind
from ....backends.device.array import DeviceArray
from ....backends.device.determinism import fills_now
from ....backends.null import NullArray
from ....core.annotations import DeviceLike, Dims, DTypeLike, Format, Scalar
from ....core.gate import Tracer
from ....core.tensor import Tensor, wrap
from ....core.tensor import layout as layout_of
from ....core.types import dtypes
from ....core.types.device import CPU, META, located, usable
from ....core.types.memory_format import contiguous_format, inverse, order_of
from ....errors import ConfigError, DTypeError, LayoutError, ShapeError
from ....symbolic import as_int, is_finite, is_symbolic, made
from ...primitives import views
from ...primitives.aliases import view_as_complex
from ...promotion import fitted, refuse
from ..args import broadcast
from ..args import size as as_size
from ..sparse.creation import BLOCKS, no_blocks, zeros_of_layout
from ..views.memory_formats import kept_order
from .moving import pin_memory


def place(
    array: Any, device: DeviceLike | None, requires_grad: bool, pinned: bool = False
) -> Tensor:
    where = usable(device)
    if where is CPU or isinstance(array, DeviceArray):
        out = wrap(array)
    elif where is META:
        out = wrap(NullArray(array.shape, array.dtype))
    else:
        out = wrap(located(where).take(array))  # type: ignore[union-attr]
    out = pin_memory(out) if pinned else out
    return out.requires_grad_() if requires_grad else out


def _filled(
    make: Any,
    shape: tuple,
    dtype: DTypeLike | None,
    device: DeviceLike | None,
    requires_grad: bool,
    pinned: bool = False,
) -> Tensor:
    """``make(shape, dtype)`` as a tensor; elsewhere, what the array module there has of its name,
    or what ``make.on(xp, shape, dtype)`` gives."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    where = usable(device)
    if where is META:
        out = wrap(NullArray(shape, kind.np))
    elif where is CPU and all(type(n) is int and n >= 0 for n in shape):
        out = wrap(make(shape, kind.np))
    else:
        if any(n < 0 for n in shape):
            raise ShapeError(f"shape {list(shape)} given; sizes cannot be negative")
        out = wrap(
            made(make, shape, kind.np, shape=shape)
            if where is CPU
            else _made(make, where, shape, kind.np)
        )
    out = pin_memory(out) if pinned else out
    return out.requires_grad_() if requires_grad else out


def _made(make: Any, where: Any, shape: tuple, kind: np.dtype) -> Any:
    own = getattr(make, "on", None)
    return located(where).make(  # type: ignore[union-attr]
        lambda xp: getattr(xp, make.__name__)(shape, kind) if own is None else own(xp, shape, kind)
    )


class _Full:
    """What makes arrays full of ``value``."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, shape: tuple, kind: np.dtype) -> np.ndarray:
        return np.full(shape, self.value, kind)

    def on(self, xp: Any, shape: tuple, kind: np.dtype) -> Any:
        return xp.full(shape, self.value, kind)


def _unset(shape: tuple, kind: np.dtype) -> np.ndarray:
    """Memory that holds anything; where all is to be deterministic, nan or the largest number."""
    return np.full(shape, _marker(kind), kind) if fills_now() else np.empty(shape, kind)


def _marker(kind: np.dtype) -> Any:
    if kind.kind == "b":
        return True
    return np.iinfo(kind).max if kind.kind in "iu" else math.nan


_unset.on = lambda xp, shape, kind: (  # type: ignore[attr-defined]
    xp.full(shape, _marker(kind), kind) if fills_now() else xp.empty(shape, kind)
)


def zeros(
    *sizes: Dims, size: Dims | None = None, dtype: DTypeLike | None = None,
    layout: str | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Zeros of this shape; of a sparse ``layout``: a tensor without any place."""
    if layout not in (None, "strided"):
        made = zeros_of_layout(layout, as_size(sizes, "zeros", size), dtype, device)
        return made.requires_grad_() if requires_grad else made
    shape = as_size(sizes, "zeros", size)
    return _filled(np.zeros, shape, dtype, device, requires_grad, pin_memory)


def ones(
    *sizes: Dims, size: Dims | None = None, dtype: DTypeLike | None = None,
    layout: str | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Ones of this shape."""
    shape = as_size(sizes, "ones", size)
    return _filled(np.ones, shape, dtype, device, requires_grad, pin_memory)


def empty(
    *sizes: Dims, size: Dims | None = None, dtype: DTypeLike | None = None,
    layout: str | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Format | None = None,
) -> Tensor:  # fmt: skip
    """Memory of this shape that holds anything; of a sparse ``layout``: without any place."""
    shape = as_size(sizes, "empty", size)
    if layout not in (None, "strided"):
        return zeros(size=shape, dtype=dtype, layout=layout, requires_grad=requires_grad)
    if memory_format not in (None, contiguous_format):
        order = order_of("empty", memory_format, len(shape))
        out = _ordered(_unset, shape, dtype, device, order)
        return out.requires_grad_() if requires_grad else out
    return _filled(_unset, shape, dtype, device, requires_grad, pin_memory)


def is_size(number: Any, kind: dtypes.dtype) -> bool:
    """Whether a number is a size, and all sizes are numbers of a type."""
    return isinstance(number, int) and kind.np.char in "fdl"


def full(
    size: Dims, fill_value: Scalar, *, dtype: DTypeLike | None = None, layout: str | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """This shape filled with one value, whose type decides when ``dtype`` is None."""
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    kind = _number_type(fill_value) if dtype is None else dtypes.as_dtype(dtype)
    shape = as_size((size,), "full")
    varies = is_symbolic(fill_value) and usable(device) is CPU
    if varies and (is_size(fill_value, kind) or kind.np.kind == "f"):
        array = made(np.full, shape, fill_value, kind.np, shape=shape)
        return wrap(array).requires_grad_(requires_grad)
    value = fitted("full", fill_value, kind)
    return _filled(_Full(value), shape, kind, device, requires_grad, pin_memory)


def _number_type(*values: object) -> dtypes.dtype:
    """The type of new tensors made from these numbers."""
    if any(isinstance(v, complex_) for v in values):
        return dtypes.get_default_dtype().to_complex()
    if all(isinstance(v, (bool, np.bool_)) for v in values):
        return dtypes.bool
    if all(isinstance(v, (int, np.integer)) for v in values):
        return dtypes.int64
    return dtypes.get_default_dtype()


complex_ = (builtins.complex, np.complexfloating)


def _like(
    make: Callable[..., Any] | _Full,
    input: Tensor,
    dtype: DTypeLike | None,
    device: DeviceLike | None,
    requires_grad: bool,
    memory_format: Format | None = None,
) -> Tensor:
    """Of the shape of ``input``, and laid out as it is unless ``memory_format`` says how."""
    if input._composes is not None:
        raise LayoutError(
            f"a tensor like one of layout {input.layout!r} that is full: there is none"
        )
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    where = input.device if device is None else device
    array = None if isinstance(input, Tracer) else layout_of(input)
    if isinstance(array, ArrayKind) and array.places_others:
        out = wrap(array.similar(make, tuple(input.shape), kind.np, usable(where).type == "meta"))
    else:
        order = None if array is None else kept_order("like", input, memory_format)
        out = _beside(input, _ordered(make, tuple(input.shape), kind, where, order))
    return out.requires_grad_() if requires_grad else out


def _ordered(make: object, shape: tuple, kind: Any, where: Any, order: tuple | None) -> Tensor:
    """What ``_filled`` makes, in this order of dimensions."""
    if order is None or usable(where) is META:
        return _filled(make, shape, kind, where, False)
    if usable(where) is CPU and not any(n < 0 for n in shape):
        own = (dtypes.get_default_dtype() if kind is None else dtypes.as_dtype(kind)).np
        given = make, shape, own, order
        return wrap(made(_made_in_order, *given, shape=shape, in_order=False))
    first = _filled(make, tuple(shape[d] for d in order), kind, where, False)
    return wrap(views.permute.compute([layout_of(first)], {"dims": inverse(order)}))


def _made_in_order(make: Any, shape: tuple, kind: np.dtype, order: tuple) -> np.ndarray:
    return make(tuple(shape[d] for d in order), kind).transpose(inverse(order))


def _beside(input: Tensor, made: Tensor) -> Tensor:
    """``made`` at the level of ``input``: values inside a transform can be written to it there."""
    return input.interp.lift(made) if isinstance(input, Tracer) else made


def zeros_like(
    input: Tensor, *, dtype: DTypeLike | None = None, layout: str | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False, memory_format: Format | None = None,
) -> Tensor:  # fmt: skip
    if input._composes is not None or layout not in (None, "strided"):
        kind = input.dtype if dtype is None else dtype
        wanted = input.layout if layout is None else layout
        if wanted == input.layout and wanted in BLOCKS:
            empty = no_blocks(input, kind, device or input.device)
            return empty.requires_grad_() if requires_grad else empty
        return zeros(*input.shape, dtype=kind, layout=wanted, device=device or input.device,
                     requires_grad=requires_grad)  # fmt: skip
    return _like(np.zeros, input, dtype, device, requires_grad, memory_format)


def ones_like(
    input: Tensor, *, dtype: DTypeLike | None = None, layout: str | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False, memory_format: Format | None = None,
) -> Tensor:  # fmt: skip
    return _like(np.ones, input, dtype, device, requires_grad, memory_format)


def empty_like(
    input: Tensor, *, dtype: DTypeLike | None = None, layout: str | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False, memory_format: Format | None = None,
) -> Tensor:  # fmt: skip
    if input._composes is not None and memory_format is not None:
        raise ConfigError("empty_like: memory_format given; it is for dense tensors")
    if input._composes is not None or layout not in (None, "strided"):
        return zeros_like(
            input, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
        )
    return _like(_unset, input, dtype, device, requires_grad, memory_format)


def full_like(
    input: Tensor, fill_value: Scalar, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False, memory_format: Format | None = None,
) -> Tensor:  # fmt: skip
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    value = fitted("full_like", fill_value, kind)
    return _like(_Full(value), input, kind, device, requires_grad, memory_format)


def _number(x: Scalar) -> Any:
    """A number that may be given as a tensor."""
    return x.item() if isinstance(x, Tensor) else x


def arange(
    start: Scalar, end: Scalar | None = None, step: Scalar = 1, *, dtype: DTypeLike | None = None,
    layout: str | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from ``start`` to before ``end``; integers when all of them are."""
    given = (0, start, step) if end is None else (start, end, step)
    low, high, by = numbers = [_number(x) for x in given]
    if by == 0:
        raise ConfigError("arange: step 0 given; it must not be zero")
    if not (is_finite(low) and is_finite(high)):
        raise ConfigError(f"arange: unsupported range: {low} to {high}; both must be finite")
    if (high - low) * by < 0:
        raise ConfigError(
            f"arange: start={low}, end={high}, step={by} given; the upper bound and the lower "
            "bound are inconsistent with the sign of the step"
        )
    whole = all(isinstance(x, (int, np.integer)) for x in numbers)
    kind = dtypes.int64 if whole else dtypes.get_default_dtype()
    kind = kind if dtype is None else dtypes.as_dtype(dtype)
    if kind.np.kind not in "iufV":
        raise refuse("arange", kind.np)
    if kind.np.kind in "iu":
        low, high, by = map(as_int, numbers)
        if not by:
            raise ConfigError(f"arange: a step below 1 given for {kind!r}; it must not be zero")
    exact = whole or kind.np.kind in "iu"
    n = -(-(high - low) // by) if exact else math.ceil((high - low) / by)
    where, n = usable(device), as_int(n)
    there = located(where)
    if there is None:
        array: Any = made(_steps, low, n, by, kind.np, shape=(n,))
    else:
        array = there.make(lambda xp: (low + xp.arange(n) * by).astype(kind.np))
    return place(array, where, requires_grad)


def _steps(low: Any, n: int, by: Any, kind: np.dtype) -> np.ndarray:
    return (low + np.arange(n) * by).astype(kind)


def linspace(
    start: float, end: float, steps: int, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``steps`` numbers from ``start`` to ``end``, both included."""
    start, end = (x.item() if isinstance(x, Tensor) else x for x in (start, end))
    kind = _ends_type("linspace", dtype, start, end)
    if steps < 0:
        raise ConfigError(f"linspace: steps={steps} given; it must not be negative")
    array = _even(start, end, as_int(steps), device, kind.np)
    return place(array, device, requires_grad)


def _even(
    start: Any, end: Any, steps: int, device: DeviceLike | None, kind: np.dtype, base: Any = None
) -> Any:
    """Numbers from ``start`` to ``end``, or ``base`` to the power of those, made where ``device``
    is."""
    there = located(usable(device))
    if there is None:
        return made(_even_numbers, np, start, end, steps, kind, base, shape=(steps,))
    return there.make(lambda xp: _even_numbers(xp, start, end, steps, kind, base))


def _even_numbers(xp: Any, start: Any, end: Any, steps: int, kind: np.dtype, base: Any) -> Any:
    found = xp.linspace(start, end, steps)
    return (found if base is None else base**found).astype(kind)


def _ends_type(where: str, dtype: DTypeLike | None, *ends: object) -> dtypes.dtype:
    """The type of numbers between ``ends``: floating, or complex where one of them is."""
    kind = _number_type(*ends)
    kind = kind if kind.is_complex else dtypes.get_default_dtype()
    if dtype is not None:
        given = dtypes.as_dtype(dtype)
        if given is dtypes.bool or (kind.is_complex and not given.is_complex):
            raise refuse(where, given.np)
        kind = given
    return kind


def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``base`` to the power of ``steps`` numbers from ``start`` to ``end``, both included."""
    start, end, base = (x.item() if isinstance(x, Tensor) else x for x in (start, end, base))
    kind = _ends_type("logspace", dtype, start, end)
    if steps < 0:
        raise ConfigError(f"logspace: steps={steps} given; it must not be negative")
    array = _even(start, end, as_int(steps), device, kind.np, base)
    return place(array, device, requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Ones on the diagonal."""
    columns = n if m is None else m
    return _filled(_eye, (n, columns), dtype, device, requires_grad)


def _eye(shape: tuple, kind: np.dtype) -> np.ndarray:
    return np.eye(*shape, dtype=kind)


_eye.on = lambda xp, shape, kind: xp.eye(*shape, dtype=kind)  # type: ignore[attr-defined]


def parts_of_one_type(where: str, one: Tensor, two: Tensor) -> None:
    """Refuse what complex numbers are not made of."""
    names = one.dtype.title, two.dtype.title
    if not {one.dtype, two.dtype} <= {dtypes.float32, dtypes.float64}:
        raise DTypeError(
            f"{where}: Expected both inputs to be Half, Float or Double tensors but got {names[0]} "
            f"and {names[1]}; needed two floating-point tensors of one type, float32 or float64"
        )
    if one.dtype is not two.dtype:
        raise DTypeError(
            f"{where}: Expected object of scalar type {names[0]} but got scalar type {names[1]} "
            "for second argument; needed two floating-point tensors of one type"
        )


def complex(real: Tensor, imag: Tensor) -> Tensor:  # noqa: A001
    """A complex tensor from the real and the imaginary part, both float32 or both float64."""
    parts_of_one_type("complex", real, imag)
    shape = broadcast("complex", real.shape, imag.shape)
    parts = [views.reshape(views.expand(t, shape=shape), shape=(*shape, 1)) for t in (real, imag)]
    return view_as_complex(views.cat(*parts, dim=len(shape), sizes=(1, 1)))


def new_like(make: object, input: Tensor, size: Sequence, **options: object) -> Tensor:
    """``x.new_zeros(...)`` and its kin: the type and device of ``input`` unless given."""
    wanted = options.pop("requires_grad", False)
    array = None if isinstance(input, Tracer) else layout_of(input)
    if isinstance(array, ArrayKind) and array.places_others:
        shape, kind = new_beside(make, input, *size, **{**options, "device": "meta"}).meta()
        fill = np.zeros if make is zeros else np.ones if make is ones else np.empty
        out = wrap(array.similar(fill, shape, kind, input.is_meta))
    else:
        out = new_beside(make, input, *size, **options)
    return out.requires_grad_() if wanted else out


def new_beside(make: Any, input: Tensor, *args: object, **options: object) -> Tensor:
    """``make(*args)`` with the type and device of ``input`` unless given, at its level."""
    for name in ("dtype", "device"):
        options[name] = options.get(name) or getattr(input, name)
    return _beside(input, make(*args, **options))


__all__ = [
    "arange",
    "complex",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]
