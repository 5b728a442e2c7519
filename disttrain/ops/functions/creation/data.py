"""Public functions that make tensors from data: numbers, nested sequences, arrays, buffers. Torch's
names."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.annotations import ArrayLike, DeviceLike, DTypeLike
from ....core.classes import values_of
from ....core.gate import Tracer
from ....core.tensor import Size, Tensor, note_read, wrap
from ....core.types import dtypes
from ....core.types.device import chosen, located
from ....core.types.wide import within
from ....errors import ConfigError, DTypeError, ShapeError
from ....symbolic import is_symbolic, made
from ....trace import warn
from ...primitives.aliases import locked
from ...promotion import fitted
from .create import empty, is_size, place
from .moving import to


def tensor(
    data: ArrayLike, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A new tensor with a copy of ``data`` (numbers, nested sequences, arrays, tensors), where
    ``data`` is, or on ``device``.

    Python floats become the default type, integers int64. ``pin_memory``: in page-locked memory.
    """
    if isinstance(data, Tensor) and (type(data.__dict__.get("array")) is np.ndarray
                                     or data._composes or _apart(data, device)):  # fmt: skip
        note_read(data)
        device = chosen(device)
        out = to(data.detach(), data.device if device is None else device, dtype, copy=True)
        return out.requires_grad_() if requires_grad else out
    if is_symbolic(data) and not isinstance(data, (list, tuple)):
        kind = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
        if is_size(data, kind):
            array = made(np.full, (), data, kind.np, shape=())
            return place(array, device, requires_grad, pin_memory)
    if isinstance(data, (list, tuple)) and is_symbolic(data):
        shape, numbers = _listed(data)
        if numbers is not None:
            floating = any(isinstance(n, float) for n in numbers)
            whole = dtypes.get_default_dtype() if floating else dtypes.int64
            kind = whole if dtype is None else dtypes.as_dtype(dtype)
            array = made(numbers_of_sizes, kind.np, shape, *numbers, shape=shape)
            return place(array, device, requires_grad, pin_memory)
    return place(_array_of(data, dtype, copy=True), device, requires_grad, pin_memory)


def numbers_of_sizes(kind: np.dtype, shape: tuple, *numbers: float) -> np.ndarray:
    """Numbers, some of them sizes, in a shape."""
    return np.array(numbers).astype(kind).reshape(shape)


def _listed(data: Any) -> tuple[tuple, list | None]:
    """The shape of nested sequences of integers and floats, and these in one list; None where they
    are others, or of different lengths."""
    if not isinstance(data, (list, tuple)):
        return (), [data] if isinstance(data, (int, float)) else None
    shapes, rows = zip(*map(_listed, data), strict=True) if data else ((), ())
    if not data or len(set(shapes)) > 1 or any(row is None for row in rows):
        return (), None
    return (len(data), *shapes[0]), [n for row in rows for n in row]


def _apart(data: Tensor, device: DeviceLike | None) -> bool:
    """Whether ``data`` lies on an accelerator, or is to."""
    return not isinstance(data, Tracer) and located(data.device) is not None


def _array_of(data: ArrayLike, dtype: DTypeLike | None, copy: bool) -> np.ndarray:
    kind = None if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(data, Tensor):
        note_read(data)
        array = data.array
    elif isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
    else:
        array = _from_python(data)
        whole = kind is None or kind.np.kind in "iu"
        if whole and array.dtype.char in "dD" and np.any(np.abs(array) >= 2.0**63):
            _no_overflow(data)
        _check_range(array, kind)
        if kind is None:
            kind = _python_type(data, array)
    np_kind = (dtypes.of(array.dtype) if kind is None else kind).np
    if array.dtype.kind == "c" and np_kind.kind != "c":
        array = _real_part(data, array, np_kind)
    out = dtypes.known(within(array, np_kind).astype(np_kind, copy=copy))
    return np.array(out, order="C", copy=True) if copy and out is array else out


def _real_part(data: object, array: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Complex numbers for a real type: whether they are zero, for booleans; else those of arrays
    lose their imaginary part, and Python's are refused."""
    if kind.kind == "b":
        return array != 0
    if not isinstance(data, (Tensor, np.ndarray, np.generic)):
        raise DTypeError(
            "tensor: complex numbers given for a real dtype, must be real numbers; take .real first"
        )
    warn("Casting complex values to real discards the imaginary part")
    return array.real.copy()


def _no_overflow(data: object) -> None:
    """Refuse Python's integers that int64 does not hold."""
    todo = [data]
    while todo:
        part = todo.pop()
        if isinstance(part, (list, tuple, range)):
            todo += part
        elif type(part) is int and not -(1 << 63) <= part < 1 << 63:
            raise ConfigError(
                f"tensor: Overflow when unpacking long long: {part} given; pass a floating-point "
                "dtype"
            )


def _check_range(array: np.ndarray, kind: dtypes.dtype | None) -> None:
    """Python's integers must fit; into unsigned types negative ones count from their end."""
    if array.dtype.kind not in "iu" or not array.size:
        return
    kind = dtypes.int64 if kind is None else kind
    if kind.np.kind in "iu":
        for value in (int(array.min()), int(array.max())):
            fitted("tensor", value, kind)


_NUMBERS = {bool: dtypes.bool, int: dtypes.int64}  # floats and complex ones: the default type


def _type_within(data: Any) -> dtypes.dtype | None:
    """The type of nested sequences: what the types of all numbers within them promote to. numpy's
    numbers and tensors have one of their own. None where there is no number."""
    kinds: set = set()
    todo = [data]
    while todo:
        part = todo.pop()
        for cls in set(map(type, part)):
            if issubclass(cls, (list, tuple, range)):
                todo += [x for x in part if type(x) is cls]
            elif issubclass(cls, np.generic):
                kinds.add(dtypes.of(np.dtype(cls)))
            elif issubclass(cls, (Tensor, np.ndarray)):
                kinds.update(dtypes.as_dtype(x.dtype) for x in part if type(x) is cls)
            elif issubclass(cls, (bool, int)):
                kinds.add(_NUMBERS[bool if issubclass(cls, bool) else int])
            else:
                kinds.add(_default_type(issubclass(cls, complex)))
    return functools.reduce(dtypes.promote_types, kinds) if kinds else None


def _default_type(is_complex: bool) -> dtypes.dtype:
    kind = dtypes.get_default_dtype()
    return kind.to_complex() if is_complex else kind


def _python_type(data: object, array: np.ndarray) -> dtypes.dtype | None:
    if isinstance(data, (list, tuple)) and array.size:
        return _type_within(data)
    return _default_type(array.dtype.kind == "c") if array.dtype.char in "dD" else None


def _from_python(data: object) -> np.ndarray:
    if hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        return np.asarray(data)
    try:
        array = np.array(_plain(data))
    except ValueError as error:
        raise ShapeError(
            "tensor: expected sequence of length equal to that of the others at its level; "
            f"the nested sequences have different lengths: {error}"
        ) from None
    if array.dtype.kind == "O":
        array = _large(array)
    if array.dtype.kind in "OUS":
        raise DTypeError(
            f"tensor: numbers are needed, but the data holds {_first_odd(data)}; convert it first"
        )
    return np.zeros(array.shape, np.float64) if array.size == 0 else array


def _large(array: np.ndarray) -> np.ndarray:
    """Numbers among which are integers beyond 64 bits as floating-point ones; else ``array``."""
    for kinds, wide in ((int, float), np.float64), ((int, float, complex), np.complex128):
        if all(isinstance(x, kinds) for x in array.flat):
            return array.astype(wide)
    return array


def _plain(data: object) -> Any:
    """Nested sequences with tensors inside as nested lists; those of one element are numbers."""
    if isinstance(data, Tensor):
        note_read(data)
        values = values_of(data)
        return values.reshape(())[()] if values.size == 1 else values
    if isinstance(data, (list, tuple, range)):
        return [_plain(x) for x in data]
    return data


def _first_odd(data: object) -> str:
    if isinstance(data, (list, tuple)):
        for x in data:
            if not isinstance(x, (int, float, bool, complex, np.generic)):
                return _first_odd(x)
    return f"{type(data).__name__} {data!r}"[:80]


def as_tensor(
    data: ArrayLike, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """``data`` as a tensor, sharing memory with arrays and tensors where the type allows."""
    if isinstance(data, Tensor):
        device = chosen(device)
        kind = data.dtype if dtype is None else dtypes.as_dtype(dtype)
        return data if kind is data.dtype and device is None else to(data, device, kind)
    if is_symbolic(data):
        return tensor(data, dtype=dtype, device=device)
    return place(_array_of(data, dtype, copy=False), device, False)


def asarray(
    obj: Any, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    copy: bool | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``obj`` as a tensor: over the same memory where it is a tensor, an array or a buffer (of
    ``dtype``, the default one unless given) and nothing has to change. ``copy``: True, never over
    the same memory; False, an error where it cannot be."""
    if type(obj).__name__ == "PyCapsule":
        obj = from_dlpack(obj)
    elif _is_buffer(obj):
        kind = dtypes.get_default_dtype() if dtype is None else dtype
        obj = np.frombuffer(obj, dtypes.as_dtype(kind).np)
    out = as_tensor(obj, dtype, device)
    if copy is False and not _shares(out, obj):
        raise ConfigError(f"asarray: copy=False given; {_no_alias(out, obj)}")
    if copy and _shares(out, obj):
        out = to(out.detach(), out.device, copy=True)
    return out.requires_grad_() if requires_grad and not out.requires_grad else out


def _no_alias(out: Tensor, obj: Any) -> str:
    """Why ``out`` does not lie where ``obj`` does."""
    if isinstance(obj, np.generic):
        return "can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray."
    if not isinstance(obj, (Tensor, np.ndarray)):
        return f"can't alias arbitrary sequence ({type(obj).__name__}) into a tensor."
    was = dtypes.as_dtype(obj.dtype)
    if was is not out.dtype:
        return f"can't alias tensor with dtype '{was.title}' into dtype '{out.dtype.title}'."
    return f"can't alias tensor from device '{getattr(obj, 'device', 'cpu')}' to '{out.device}'."


def _is_buffer(obj: Any) -> bool:
    if isinstance(obj, (Tensor, np.ndarray, np.generic)):
        return False
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def _shares(out: Tensor, obj: object) -> bool:
    """Whether ``out`` lies where ``obj`` lies."""
    if isinstance(obj, Tensor):
        return out.data_ptr() == obj.data_ptr()
    return isinstance(obj, np.ndarray) and out.data_ptr() == obj.__array_interface__["data"][0]


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor over the memory of a numpy array."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: a numpy array is needed, {type(array).__name__} given")
    if not array.flags.writeable:
        warn(
            "from_numpy: The given NumPy array is not writable; writes to the tensor will fail. "
            "You may want to copy the array first"
        )
    if type(array) is not np.ndarray:  # of a file, say
        array = array.view(np.ndarray)
    dtypes.of(array.dtype)
    if not array.dtype.isnative:
        raise DTypeError("from_numpy: the array's byte order is foreign; use array.astype first")
    return wrap(locked(dtypes.known(array)))


_TYPE = 20  # where a DLTensor has the code of its element type
_BFLOAT, _UNSIGNED = 4, 1  # codes of DLPack
_POINTER_OF: Any = ctypes.pythonapi.PyCapsule_GetPointer
_POINTER_OF.restype, _POINTER_OF.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _type_code(capsule: object) -> Any:
    """The code of the element type in a capsule, which may be set."""
    text = repr(capsule)
    name, before = ("dltensor_versioned", 32) if "versioned" in text else ("dltensor", 0)
    return ctypes.c_uint8.from_address(_POINTER_OF(capsule, name.encode()) + before + _TYPE)


class _Capsule:
    """A capsule of DLPack, as the object that numpy asks for one."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack__(self, **how: object) -> object:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _HOST


_HOST = (1, 0)  # kDLCPU, the first


def _imported(given: Any) -> np.ndarray:
    if hasattr(given, "__dlpack__"):
        return np.from_dlpack(given)
    try:
        code = _type_code(given)
        brain = code.value == _BFLOAT
        if brain:  # which numpy does not know
            code.value = _UNSIGNED
        array = np.from_dlpack(_Capsule(given))  # type: ignore[arg-type]
        return array.view(dtypes.bfloat16.np) if brain else array
    except ValueError as e:
        raise ConfigError(
            f"from_dlpack: {type(given).__name__} given; needed a tensor, an array or a capsule of "
            "DLPack that nobody has taken yet (each can be taken once)"
        ) from e


def from_dlpack(
    ext_tensor: Any, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor over the memory of an object that offers it by DLPack, or of a capsule, on the
    host (``copy=True``: over a copy of it)."""
    if isinstance(ext_tensor, Tensor):
        seen = ext_tensor.detach()
    else:
        seen = from_numpy(_imported(ext_tensor))
    if device is not None:
        seen = seen.to(device)
    return seen.clone() if copy else seen


def to_dlpack(tensor: Tensor, **how: Any) -> Any:
    """A capsule of DLPack over the tensor's memory, on the host. The float8 types are refused, as
    is a tensor in a graph: detach it first."""
    if tensor.requires_grad:
        raise BufferError("to_dlpack: Can't export tensors that require gradient; use detach()")
    how.pop("stream", None)
    how = {"max_version": (1, 0), **how}
    if tensor.dtype is not dtypes.bfloat16:
        return tensor.numpy().__dlpack__(**how)
    capsule = tensor.numpy().view(np.uint16).__dlpack__(**how)
    _type_code(capsule).value = _BFLOAT
    return capsule


def array_wrap(self: Tensor, array: Any, *context: object) -> Tensor:
    """What numpy's functions of a tensor give is one, too; booleans as uint8, as in PyTorch."""
    array = np.asarray(array)
    return from_numpy(array.astype(np.uint8) if array.dtype.kind == "b" else array)


def frombuffer(
    buffer: Any, *, dtype: DTypeLike, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A tensor over the memory of a bytes-like object: of ``count`` elements (-1: all that there
    are) from byte ``offset`` on."""
    kind = dtypes.as_dtype(dtype).np
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ConfigError(
            f"frombuffer: {type(buffer).__name__} given: object does not implement Python buffer "
            "protocol."
        ) from None
    _check_extent(view.nbytes, kind.itemsize, count, offset)
    if view.readonly:
        warn(
            "frombuffer: The given buffer is not writable; writes to the tensor will fail. You may "
            "want to copy the buffer first"
        )
    return place(np.frombuffer(buffer, kind, count, offset), None, requires_grad)


def _check_extent(size: int, item: int, count: int, offset: int) -> None:
    """Refuse elements that a buffer of ``size`` bytes does not have."""
    left, wrong = size - offset, None
    if not size or not count:
        wrong = f"both buffer length ({size}) and count ({count}) must not be 0"
    elif not 0 <= offset < size:
        wrong = (
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({size} bytes) minus 1"
        )
    elif count < 0 and left % item:
        wrong = (
            f"buffer length ({left} bytes) after offset ({offset} bytes) must be a multiple of "
            f"element size ({item})"
        )
    elif count * item > left:
        wrong = (
            f"requested buffer length ({count} * {item} bytes) after offset ({offset} bytes) must "
            f"not be greater than actual buffer length ({size} bytes)"
        )
    if wrong:
        raise ConfigError(f"frombuffer: {wrong}")


def construct(
    kind: dtypes.dtype, args: tuple, *, size: Sequence[int] | None = None, data: object = None,
    device: DeviceLike | None = None, any_type: bool = False,
) -> Tensor:  # fmt: skip
    """What old programs write: ``T()``, ``T(2, 3)`` and ``T(Size)`` (sizes, holding anything),
    ``T([1, 2])`` and any other sequence (data), ``T(tensor)`` (the same memory; of type ``kind``
    unless ``any_type``)."""
    if size is not None or data is not None:
        if args or (size is not None and data is not None):
            raise TypeError("new() received an invalid combination of arguments")
        args = (Size((size,) if isinstance(size, int) else size),) if size is not None else (data,)
    first: Any = args[0] if len(args) == 1 else None
    if isinstance(first, Tensor):
        if first.dtype is not kind and not any_type:
            raise TypeError(f"new(): expected a tensor of {kind!r}, {first.dtype!r} given")
        return first.detach()
    if hasattr(first, "untyped"):  # a storage
        if first.dtype is not kind:
            raise DTypeError(f"new(): expected a storage of {kind!r}, {first.dtype!r} given")
        return first._flat()
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


def _from_sequence(kind: dtypes.dtype, data: Any, device: DeviceLike | None) -> Tensor:
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(data, dict):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type {type(data).__name__!r}")
    return tensor(data if hasattr(data, "dtype") else list(data), dtype=kind, device=device)


__all__ = [
    "as_tensor",
    "asarray",
    "from_dlpack",
    "from_numpy",
    "frombuffer",
    "tensor",
    "to_dlpack",
]
