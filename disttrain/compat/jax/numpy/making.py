"""Functions of ``jax.numpy`` that make arrays of numbers, shapes and other people's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays import making
from ....arrays.axes import shape_of
from ....core.tensor import Tensor
from ....core.tensor import wrap as tensor
from ....ops import api as ops
from .. import types
from ..array import Array, wrap
from .lifting import NUMBERS, cast, given_back, kind_of, named, one, plain, to_tensor, table, weak_of


def array(
    object: Any, dtype: Any = None, copy: bool = True, order: str = "K", ndmin: int = 0,  # noqa: A002
    *, device: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """An array of numbers, nested sequences of them, arrays and whatever numpy takes."""
    if object is None:
        raise ValueError("None is not a valid value for jnp.array")
    kind = None if dtype is None else types.asked(dtype, "array")
    value, weak = _value(plain(object), kind)
    if copy and object.__class__ is Array:
        value = value.clone()
    if value.ndim < ndmin:
        value = value.reshape((1,) * (ndmin - value.ndim) + tuple(value.shape))
    return wrap(value, weak)


def _value(x: Any, kind: np.dtype | None) -> tuple[Tensor, bool]:
    if isinstance(x, (list, tuple)):
        return _nested(x, kind), False
    if isinstance(x, NUMBERS) and not isinstance(x, np.generic):
        own, weak = types.of_number(x)
        return _number(x, own if kind is None else kind), weak and kind is None
    if isinstance(x, (Array, Tensor, np.ndarray, np.generic)):
        own, weak = kind_of(x, "array")
        return to_tensor(x, own if kind is None else kind), weak and kind is None
    found = np.asarray(x)
    return to_tensor(found, types.canonical(found.dtype) if kind is None else kind), False


def _number(x: Any, kind: np.dtype) -> Tensor:
    if isinstance(x, int) and kind.kind in "iu":
        return tensor(np.array(x, kind))  # raises OverflowError as JAX does
    return to_tensor(x, kind)


def _nested(x: Any, kind: np.dtype | None) -> Tensor:
    leaves = _leaves(x)
    if kind is None:
        kinds = [kind_of(leaf, "array") for leaf in leaves if _known(leaf)]
        kind = types.result_kind(*kinds)[0] if kinds else types.canonical("float64")
    if all(not isinstance(leaf, (Array, Tensor)) for leaf in leaves):
        return tensor(np.array(x, dtype=kind))
    return ops.stack(
        [_nested(p, kind) if isinstance(p, (list, tuple)) else to_tensor(plain(p), kind) for p in x]
    )


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [leaf for part in x for leaf in _leaves(part)]
    return [plain(x)]


def _known(leaf: Any) -> bool:
    if isinstance(leaf, str):
        raise TypeError(
            f"Value {leaf!r} with dtype <U{len(leaf)} is not a valid JAX array type. Only arrays "
            "of numeric types are supported by JAX."
        )
    return True


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None,
    device: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """``array``, that keeps an array which is of that type already."""
    same = dtype is None or (a.__class__ is Array and a.dtype == dtype and not a.weak_type)
    return a if same and a.__class__ is Array and not copy else array(a, dtype, bool(copy))


def _kind(dtype: Any, where: str, default: str = "float64") -> np.dtype:
    return types.canonical(default) if dtype is None else types.asked(dtype, where)


def _filled(name: str, value: int) -> Callable:
    def run(shape: Any, dtype: Any = None, **where: Any) -> Array:
        return full(shape, value, _kind(dtype, name))

    return named(run, name)


zeros, ones, empty = _filled("zeros", 0), _filled("ones", 1), _filled("empty", 0)


def full(shape: Any, fill_value: Any, dtype: Any = None, **where: Any) -> Array:
    """One value everywhere."""
    kind = kind_of(plain(fill_value), "full")[0] if dtype is None else types.asked(dtype, "full")
    sizes, weak = shape_of(shape), weak_of(fill_value) and dtype is None
    if any(n < 0 for n in sizes):
        raise TypeError(f"Only non-negative sizes are allowed, got shape {sizes}.")
    if isinstance(fill_value, NUMBERS):
        return wrap(ops.full(sizes, fill_value, dtype=types.dtypes.of(kind)), weak)
    value = cast(one("full", fill_value), kind)
    return given_back(ops.broadcast_to(value, sizes), weak)


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, **where: Any) -> Array:
    """``full`` in the shape and type of ``a``."""
    shaped = hasattr(a, "shape") and hasattr(a, "dtype")
    kind = (a.dtype if shaped else kind_of(plain(a), "full_like")[0]) if dtype is None else dtype
    weak = weak_of(a) and dtype is None
    sizes = (a.shape if shaped else np.shape(a)) if shape is None else shape
    out = full(sizes, fill_value, types.asked(kind, "full_like"))
    out.weak_type = weak
    return out


def _like(name: str, value: int) -> Callable:
    return named(lambda a, dtype=None, shape=None, **where: full_like(a, value, dtype, shape), name)


zeros_like, ones_like, empty_like = (
    _like(n, v) for n, v in (("zeros_like", 0), ("ones_like", 1), ("empty_like", 0))
)


def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, **where: Any
) -> Array:
    """Numbers from ``start`` to before ``stop``."""
    given = [x.item() if hasattr(x, "item") else x for x in (start, stop, step)]
    ends = [x for x in (start, stop, step) if x is not None]
    kind = types.result_kind(*(kind_of(x, "arange") for x in ends))[0]
    kind = kind if dtype is None else types.asked(dtype, "arange")
    numbers = [x for x in given if x is not None]
    if given[1] is None and given[2] is not None:
        numbers = [0, given[0], given[2]]
    return wrap(tensor(np.arange(*numbers).astype(kind)))


_TABLE = """
linspace start stop -> inexact; logspace start stop base -> inexact
geomspace start stop -> inexact; tril! m -> same; triu! m -> same; diag! v -> same
diagflat! v -> same
"""
NAMES: dict[str, Any] = table(_TABLE, (making,))


def typed_maker(name: str, make: Callable, default: str = "float64") -> Callable:
    """A maker of tensors that has a ``dtype`` of its own in JAX."""

    def run(*args: Any, dtype: Any = None, **more: Any) -> Any:
        more.pop("device", None), more.pop("copy", None), more.pop("out_sharding", None)
        kind = _kind(dtype, name, default)
        out = make(*args, **more)
        many = isinstance(out, tuple)
        return given_back(tuple(cast(p, kind) for p in out) if many else cast(out, kind))

    return named(run, name)


for _name in "hanning hamming blackman bartlett kaiser eye identity tri".split():
    NAMES[_name] = typed_maker(_name, getattr(making, _name))
for _name in "indices tril_indices triu_indices diag_indices".split():
    NAMES[_name] = typed_maker(_name, getattr(making, _name), "int64")


def meshgrid(
    *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Array]:
    """Coordinates of a grid from those of its axes."""
    tensors = [one("meshgrid", x) for x in xi]
    tensors = [t if t.ndim else t.reshape(1) for t in tensors]
    return given_back(making.meshgrid(tensors, sparse, indexing))


def fromfunction(function: Callable, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """``function`` of the places of each element."""
    places = NAMES["indices"](tuple(shape_of(shape)), dtype=dtype)
    return function(*places, **kwargs)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """The numbers that lie in a buffer."""
    return asarray(np.frombuffer(buffer, types.asked(dtype, "frombuffer"), count, offset))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """The array that another library holds."""
    return array(x if isinstance(x, Array) else ops.from_dlpack(x))


def copy(a: Any, order: str | None = None) -> Array:
    """A copy."""
    return array(a)


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Array:
    """``x`` in another type."""
    kind = _kind(dtype, "astype")
    value = one("astype", x)
    return given_back(cast(value, kind))


def broadcast_arrays(*args: Any) -> list[Array]:
    """Arrays repeated to one shape."""
    tensors = [one("broadcast_arrays", x) for x in args]
    try:
        out = ops.broadcast_tensors(*tensors) if tensors else []
    except ValueError as error:
        raise ValueError(f"Incompatible shapes for broadcasting: {error}") from None
    return [given_back(t, weak_of(x)) for t, x in zip(out, args)]


for _fn in (array, asarray, zeros, ones, empty, full, full_like, zeros_like, ones_like, empty_like,
            arange, meshgrid, fromfunction, frombuffer, from_dlpack, copy, astype,
            broadcast_arrays):  # fmt: skip
    NAMES[_fn.__name__] = _fn
NAMES["tril_indices_from"] = lambda arr, k=0: NAMES["tril_indices"](arr.shape[0], k, arr.shape[1])
NAMES["triu_indices_from"] = lambda arr, k=0: NAMES["triu_indices"](arr.shape[0], k, arr.shape[1])
NAMES["diag_indices_from"] = lambda arr: NAMES["diag_indices"](arr.shape[0], arr.ndim)
