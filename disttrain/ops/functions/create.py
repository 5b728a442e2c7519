"""Public functions that make tensors from data or from nothing. Torch's names."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...backends.kinds import ArrayKind
from ...backends.null import NullArray
from ...core import dtypes
from ...core.classes import values_of
from ...core.device import CPU, META, chosen, located, usable
from ...core.gate import Tracer
from ...core.tensor import Size, Tensor, note_read, wrap
from ...core.tensor import layout as layout_of
from ...errors import ConfigError, DTypeError, ShapeError
from ..primitives import views
from ..primitives.aliases import view_as_complex
from ..promotion import fitted, refuse
from .args import size as as_size
from .moving import pin_memory, to
from .sparse import no_places


def _place(array: Any, device: Any, requires_grad: bool, pinned: bool = False) -> Tensor:
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
    make: Any, shape: tuple, dtype: Any, device: Any, requires_grad: bool, pinned: bool = False
) -> Tensor:
    """``make(shape, dtype)`` as a tensor; elsewhere, what the array module there has of its name,
    or what ``make.on(xp, shape, dtype)`` gives."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    where = usable(device)
    if where is META:
        out = wrap(NullArray(shape, kind.np))
    else:
        if any(n < 0 for n in shape):
            raise ShapeError(f"shape {list(shape)} given; sizes cannot be negative")
        out = wrap(make(shape, kind.np) if where is CPU else _made(make, where, shape, kind.np))
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


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A new tensor with a copy of ``data`` (numbers, nested sequences, arrays, tensors), where
    ``data`` is, or on ``device``.

    Python floats become the default type, integers int64. ``pin_memory``: in page-locked memory.
    """
    if isinstance(data, Tensor) and _apart(data, device):
        note_read(data)
        device = chosen(device)
        out = to(data.detach(), data.device if device is None else device, dtype, copy=True)
        return out.requires_grad_() if requires_grad else out
    return _place(_array_of(data, dtype, copy=True), device, requires_grad, pin_memory)


def _apart(data: Tensor, device: Any) -> bool:
    """Whether ``data`` lies on an accelerator, or is to."""
    return not isinstance(data, Tracer) and located(data.device) is not None


def _array_of(data: Any, dtype: Any, copy: bool) -> np.ndarray:
    kind = None if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(data, Tensor):
        note_read(data)
        array = data.array
    elif isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
    else:
        array = _from_python(data)
        _check_range(array, kind)
        if kind is None and not hasattr(_first(data), "dtype"):
            kind = _python_type(array)
    np_kind = array.dtype if kind is None else kind.np
    dtypes.of(np_kind)
    if array.dtype != np_kind and array.dtype.kind == "c" and np_kind.kind != "c":
        raise DTypeError("tensor: complex data given for a real dtype; take .real first")
    out = array.astype(np_kind.newbyteorder("="), copy=copy)
    return np.array(out, order="C", copy=True) if copy and out is array else out


def _check_range(array: np.ndarray, kind: dtypes.dtype | None) -> None:
    """Python's integers must fit; into unsigned types negative ones count from their end."""
    if array.dtype.kind not in "iu" or not array.size:
        return
    kind = dtypes.int64 if kind is None else kind
    if kind.np.kind in "iu":
        for value in (int(array.min()), int(array.max())):
            fitted("tensor", value, kind)


def _first(data: Any) -> Any:
    """The first number in nested sequences; numpy's numbers and tensors bring their type along."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return data


def _python_type(array: np.ndarray) -> dtypes.dtype | None:
    if array.dtype.kind == "f" and array.dtype == np.float64:
        return dtypes.get_default_dtype()
    if array.dtype.kind == "c":
        return dtypes.get_default_dtype().to_complex()
    return None


def _from_python(data: Any) -> np.ndarray:
    if hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        return np.asarray(data)
    try:
        array = np.array(_plain(data))
    except ValueError as error:
        raise ShapeError(
            f"tensor: the nested sequences have different lengths at one level: {error}"
        ) from None
    if array.dtype.kind in "OUS":
        raise DTypeError(
            f"tensor: numbers are needed, but the data holds {_first_odd(data)}; convert it first"
        )
    return np.zeros(array.shape, np.float64) if array.size == 0 else array


def _plain(data: Any) -> Any:
    """Nested sequences with tensors inside as nested lists."""
    if isinstance(data, Tensor):
        note_read(data)
        return values_of(data)[()]
    if isinstance(data, (list, tuple, range)):
        return [_plain(x) for x in data]
    return data


def _first_odd(data: Any) -> str:
    if isinstance(data, (list, tuple)):
        for x in data:
            if not isinstance(x, (int, float, bool, complex, np.generic)):
                return _first_odd(x)
    return f"{type(data).__name__} {data!r}"[:80]


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` as a tensor, sharing memory with arrays and tensors where the type allows."""
    if isinstance(data, Tensor):
        device = chosen(device)
        kind = data.dtype if dtype is None else dtypes.as_dtype(dtype)
        return data if kind is data.dtype and device is None else to(data, device, kind)
    return _place(_array_of(data, dtype, copy=False), device, False)


asarray = as_tensor


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor over the memory of a numpy array."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: a numpy array is needed, {type(array).__name__} given")
    dtypes.of(array.dtype)
    if not array.dtype.isnative:
        raise DTypeError("from_numpy: the array's byte order is foreign; use array.astype first")
    return wrap(array)


def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A tensor over the memory of a bytes-like object."""
    array = np.frombuffer(buffer, dtypes.as_dtype(dtype).np, count, offset)
    return _place(array, None, requires_grad)


def zeros(
    *sizes: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Zeros of this shape; ``layout`` sparse_coo: a sparse tensor without any place."""
    if layout == "sparse_coo":
        return no_places(as_size(sizes, "zeros", size), dtype)
    shape = as_size(sizes, "zeros", size)
    return _filled(np.zeros, shape, dtype, device, requires_grad, pin_memory)


def ones(
    *sizes: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Ones of this shape."""
    shape = as_size(sizes, "ones", size)
    return _filled(np.ones, shape, dtype, device, requires_grad, pin_memory)


def empty(
    *sizes: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Memory of this shape that holds anything."""
    shape = as_size(sizes, "empty", size)
    return _filled(np.empty, shape, dtype, device, requires_grad, pin_memory)


def full(
    size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """This shape filled with one value, whose type decides when ``dtype`` is None."""
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    kind = _number_type(fill_value) if dtype is None else dtypes.as_dtype(dtype)
    value = fitted("full", fill_value, kind)
    shape = as_size((size,), "full")
    return _filled(_Full(value), shape, kind, device, requires_grad, pin_memory)


def _number_type(*values: Any) -> dtypes.dtype:
    """The type of new tensors made from these numbers."""
    if any(isinstance(v, complex_) for v in values):
        return dtypes.get_default_dtype().to_complex()
    if all(isinstance(v, (bool, np.bool_)) for v in values):
        return dtypes.bool
    if all(isinstance(v, (int, np.integer)) for v in values):
        return dtypes.int64
    return dtypes.get_default_dtype()


complex_ = (builtins.complex, np.complexfloating)


def _like(make: Any, input: Tensor, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    where = input.device if device is None else device
    array = None if isinstance(input, Tracer) else layout_of(input)
    if isinstance(array, ArrayKind) and array.places_others:
        out = wrap(array.similar(make, tuple(input.shape), kind.np, usable(where).type == "meta"))
    else:
        out = _beside(input, _filled(make, tuple(input.shape), kind, where, False))
    return out.requires_grad_() if requires_grad else out


def _beside(input: Tensor, made: Tensor) -> Tensor:
    """``made`` at the level of ``input``: values inside a transform can be written to it there."""
    return input.interp.lift(made) if isinstance(input, Tracer) else made


def zeros_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    return _like(np.zeros, input, dtype, device, requires_grad)


def ones_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    return _like(np.ones, input, dtype, device, requires_grad)


def empty_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    return _like(np.empty, input, dtype, device, requires_grad)


def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    value = fitted("full_like", fill_value, kind)
    return _like(_Full(value), input, kind, device, requires_grad)


def arange(
    start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from ``start`` to before ``end``; integers when all of them are."""
    if end is None:
        start, end = 0, start
    start, end, step = (x.item() if isinstance(x, Tensor) else x for x in (start, end, step))
    if step == 0:
        raise ConfigError("arange: step 0 given; it must not be zero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise ConfigError(f"arange: unsupported range: {start} to {end}; both must be finite")
    if (end - start) * step < 0:
        raise ConfigError(
            f"arange: start={start}, end={end}, step={step} given; the upper bound and the lower "
            "bound are inconsistent with the sign of the step"
        )
    whole = all(isinstance(x, (int, np.integer)) for x in (start, end, step))
    kind = dtypes.int64 if whole else dtypes.get_default_dtype()
    kind = kind if dtype is None else dtypes.as_dtype(dtype)
    if kind.np.kind not in "iufV":
        raise refuse("arange", kind.np)
    if kind.np.kind in "iu":
        start, end, step = int(start), int(end), int(step)
        if not step:
            raise ConfigError(f"arange: a step below 1 given for {kind!r}; it must not be zero")
    n = -(-(end - start) // step) if kind.np.kind in "iu" else math.ceil((end - start) / step)
    where, n = usable(device), int(n)
    there = located(where)
    if there is None:
        array: Any = (start + np.arange(n) * step).astype(kind.np)
    else:
        array = there.make(lambda xp: (start + xp.arange(n) * step).astype(kind.np))
    return _place(array, where, requires_grad)


def linspace(
    start: float, end: float, steps: int, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``steps`` numbers from ``start`` to ``end``, both included."""
    start, end = (x.item() if isinstance(x, Tensor) else x for x in (start, end))
    kind = _ends_type("linspace", dtype, start, end)
    if steps < 0:
        raise ConfigError(f"linspace: steps={steps} given; it must not be negative")
    array = _even(start, end, int(steps), device, lambda x: x.astype(kind.np))
    return _place(array, device, requires_grad)


def _even(start: Any, end: Any, steps: int, device: Any, then: Any) -> Any:
    """``then`` of numbers from ``start`` to ``end``, made where ``device`` is."""
    there = located(usable(device))
    if there is None:
        return then(np.linspace(start, end, steps))
    return there.make(lambda xp: then(xp.linspace(start, end, steps)))


def _ends_type(where: str, dtype: Any, *ends: Any) -> dtypes.dtype:
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
    start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``base`` to the power of ``steps`` numbers from ``start`` to ``end``, both included."""
    start, end, base = (x.item() if isinstance(x, Tensor) else x for x in (start, end, base))
    kind = _ends_type("logspace", dtype, start, end)
    if steps < 0:
        raise ConfigError(f"logspace: steps={steps} given; it must not be negative")
    array = _even(start, end, int(steps), device, lambda x: (base**x).astype(kind.np))
    return _place(array, device, requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Ones on the diagonal."""
    columns = n if m is None else m
    return _filled(_eye, (n, columns), dtype, device, requires_grad)


def _eye(shape: tuple, kind: np.dtype) -> np.ndarray:
    return np.eye(*shape, dtype=kind)


_eye.on = lambda xp, shape, kind: xp.eye(*shape, dtype=kind)  # type: ignore[attr-defined]


def complex(real: Tensor, imag: Tensor) -> Tensor:  # noqa: A001
    """A complex tensor from the real and the imaginary part, both float32 or both float64."""
    if real.dtype is not imag.dtype or real.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(
            f"complex: {real.dtype!r} and {imag.dtype!r} given; needed two floating-point tensors "
            "of one type, float32 or float64"
        )
    shape = np.broadcast_shapes(tuple(real.shape), tuple(imag.shape))
    parts = [views.reshape(views.expand(t, shape=shape), shape=(*shape, 1)) for t in (real, imag)]
    return view_as_complex(views.cat(*parts, dim=len(shape), sizes=(1, 1)))


def new_like(make: Any, input: Tensor, size: Sequence, **options: Any) -> Tensor:
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


def new_beside(make: Any, input: Tensor, *args: Any, **options: Any) -> Tensor:
    """``make(*args)`` with the type and device of ``input`` unless given, at its level."""
    for name in ("dtype", "device"):
        options[name] = options.get(name) or getattr(input, name)
    return _beside(input, make(*args, **options))


def construct(
    kind: dtypes.dtype, args: tuple, *, size: Any = None, data: Any = None, device: Any = None,
    any_type: bool = False,
) -> Tensor:  # fmt: skip
    """What old programs write: ``T()``, ``T(2, 3)`` and ``T(Size)`` (sizes, holding anything),
    ``T([1, 2])`` and any other sequence (data), ``T(tensor)`` (the same memory; of type ``kind``
    unless ``any_type``)."""
    if size is not None or data is not None:
        if args or (size is not None and data is not None):
            raise TypeError("new() received an invalid combination of arguments")
        args = (Size(size),) if size is not None else (data,)
    first = args[0] if len(args) == 1 else None
    if isinstance(first, Tensor):
        if first.dtype is not kind and not any_type:
            raise TypeError(f"new(): expected a tensor of {kind!r}, {first.dtype!r} given")
        return first.detach()
    if isinstance(first, Size):
        return empty(*first, dtype=kind, device=device)
    if first is not None and not isinstance(first, (int, np.integer, Tensor)):
        return _from_sequence(kind, first, device)
    if not all(isinstance(n, (int, np.integer, Tensor)) for n in args):
        raise TypeError(
            f"new() received an invalid combination of arguments: {args!r}; needed sizes, one "
            "sequence, or one tensor"
        )
    return empty(*args, dtype=kind, device=device) if args else empty(0, dtype=kind, device=device)


def _from_sequence(kind: dtypes.dtype, data: Any, device: Any) -> Tensor:
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(data, dict):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type {type(data).__name__!r}")
    return tensor(data if hasattr(data, "dtype") else list(data), dtype=kind, device=device)


__all__ = [
    "arange",
    "as_tensor",
    "asarray",
    "complex",
    "empty",
    "empty_like",
    "eye",
    "from_numpy",
    "frombuffer",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "tensor",
    "zeros",
    "zeros_like",
]
