"""A program's arrays of numbers, shapes and other people's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...core.tensor import wrap as tensor
from ...core.types import dtypes
from ...ops import api as ops
from .. import making
from ..axes import shape_of
from ..lifting import NUMBERS, Lifting, cast

_TABLE = """
. stop -> inexact: linspace geomspace; . stop base -> inexact: logspace; m -> same: tril! triu!; v
-> same: diag! diagflat!; xi** -> own: meshgrid
"""
_FLOATS = "hanning hamming blackman bartlett kaiser eye identity tri"
_PLACES = "indices tril_indices triu_indices diag_indices"
_METHODS = """array asarray full full_like arange fromfunction frombuffer from_dlpack copy astype
broadcast_arrays"""


class Making:
    """What makes arrays of the program whose ``lifting`` is given."""

    def __init__(self, lifting: Lifting) -> None:
        self.lifting = lifting

    def array(
        self, object: Any, dtype: Any = None, copy: bool = True, order: str = "K",  # noqa: A002
        ndmin: int = 0, *, device: Any = None, out_sharding: Any = None,
    ) -> Any:  # fmt: skip
        """An array of numbers, nested sequences of them, arrays and whatever numpy takes."""
        lift = self.lifting
        if object is None:
            raise lift.unfit("array", None, 0)
        kind = None if dtype is None else lift.asked(dtype, "array")
        value, weak = lift.made(lift.plain(object), kind)
        if copy and isinstance(object, (lift.own, Tensor)):
            value = value.clone()
        if value.ndim < ndmin:
            value = value.reshape((1,) * (ndmin - value.ndim) + tuple(value.shape))
        return lift.give(value, weak)

    def asarray(
        self, a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None,
        device: Any = None, out_sharding: Any = None,
    ) -> Any:  # fmt: skip
        """``array``, that keeps an array which is of that type already."""
        if a.__class__ is self.lifting.own and not copy:
            if dtype is None:
                return a
            value, weak = self.lifting.take(a)
            if value.meta()[1] == dtype and not weak:
                return a
        return self.array(a, dtype, bool(copy))

    def full(self, shape: Any, fill_value: Any, dtype: Any = None, **where: Any) -> Any:
        """One value everywhere."""
        lift = self.lifting
        found = lift.kind_of(lift.plain(fill_value), "full")[0] if dtype is None else None
        kind = lift.asked(dtype, "full") if found is None else found
        sizes, weak = shape_of(shape), lift.weak_of(fill_value) and dtype is None
        if any(n < 0 for n in sizes):
            raise TypeError(f"Only non-negative sizes are allowed, got shape {sizes}.")
        if isinstance(fill_value, NUMBERS):
            return lift.give(ops.full(sizes, fill_value, dtype=dtypes.of(kind)), weak)
        value = cast(lift.one("full", fill_value), kind)
        return lift.given_back(ops.broadcast_to(value, sizes), weak)

    def full_like(
        self, a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, **where: Any
    ) -> Any:
        """``full`` in the shape and type of ``a``."""
        lift = self.lifting
        shaped = hasattr(a, "shape") and hasattr(a, "dtype")
        own = a.dtype if shaped else lift.kind_of(lift.plain(a), "full_like")[0]
        sizes = (a.shape if shaped else np.shape(a)) if shape is None else shape
        kind = lift.asked(own if dtype is None else dtype, "full_like")
        weak = lift.weak_of(a) and dtype is None
        out = self.full(sizes, fill_value, kind)
        return lift.give(lift.take(out)[0], True) if weak else out

    def filled(self, name: str, value: int) -> Callable:
        """``full`` of one value, by its own name."""

        def run(shape: Any, dtype: Any = None, **where: Any) -> Any:
            return self.full(shape, value, self.lifting.asked(dtype, name, float))

        return self.lifting.named(run, name)  # type: ignore[no-any-return]

    def filled_like(self, name: str, value: int) -> Callable:
        """``full_like`` of one value, by its own name."""

        def run(a: Any, dtype: Any = None, shape: Any = None, **where: Any) -> Any:
            return self.full_like(a, value, dtype, shape)

        return self.lifting.named(run, name)  # type: ignore[no-any-return]

    def arange(
        self, start: Any, stop: Any = None, step: Any = None, dtype: Any = None, **where: Any
    ) -> Any:
        """Numbers from ``start`` to before ``stop``."""
        lift = self.lifting
        given = [x.item() if hasattr(x, "item") else x for x in (start, stop, step)]
        ends = [x for x in (start, stop, step) if x is not None]
        kind = lift.meet([lift.kind_of(x, "arange") for x in ends])[0]
        kind = kind if dtype is None else lift.asked(dtype, "arange")
        numbers = [x for x in given if x is not None]
        if given[1] is None and given[2] is not None:
            numbers = [0, given[0], given[2]]
        return lift.give(tensor(np.arange(*numbers).astype(kind)), False)

    def typed(self, name: str, make: Callable, default: Any = float) -> Callable:
        """A maker of tensors, with a ``dtype`` that is the program's."""
        lift = self.lifting

        def run(*args: Any, dtype: Any = None, **more: Any) -> Any:
            more = {k: v for k, v in more.items() if k not in lift.ignored}
            kind = lift.asked(dtype, name, default)
            out = make(*args, **more)
            many = isinstance(out, tuple)
            return lift.given_back(tuple(cast(p, kind) for p in out) if many else cast(out, kind))

        return lift.named(run, name)  # type: ignore[no-any-return]

    def fromfunction(
        self, function: Callable, shape: Any, *, dtype: Any = float, **kwargs: Any
    ) -> Any:
        """``function`` of the places of each element."""
        places = self.typed("indices", making.indices, int)(tuple(shape_of(shape)), dtype=dtype)
        return function(*places, **kwargs)

    def frombuffer(self, buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
        """The numbers that lie in a buffer."""
        kind = self.lifting.asked(dtype, "frombuffer")
        return self.asarray(np.frombuffer(buffer, kind, count, offset))

    def from_dlpack(self, x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
        """The array that another library holds."""
        return self.array(x if isinstance(x, self.lifting.own) else ops.from_dlpack(x))

    def copy(self, a: Any, order: str | None = None) -> Any:
        """A copy."""
        return self.array(a)

    def astype(self, x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
        """``x`` in another type."""
        lift = self.lifting
        return lift.give(cast(lift.one("astype", x), lift.asked(dtype, "astype", float)), False)

    def broadcast_arrays(self, *args: Any) -> list[Any]:
        """Arrays repeated to one shape."""
        lift = self.lifting
        try:
            out = ops.broadcast_tensors(*(lift.one("broadcast_arrays", x) for x in args or (0,)))
        except ValueError as error:
            raise ValueError(f"Incompatible shapes for broadcasting: {error}") from None
        return [lift.give(t, lift.weak_of(x)) for t, x in zip(out, args)]

    def names(self) -> dict[str, Any]:
        """All that makes arrays, by NumPy's names."""
        names: dict[str, Any] = self.lifting.table(_TABLE, (making,))
        for name, value in (("zeros", 0), ("ones", 1), ("empty", 0)):
            names[name] = self.filled(name, value)
            names[f"{name}_like"] = self.filled_like(f"{name}_like", value)
        for kind, words in ((float, _FLOATS), (int, _PLACES)):
            names |= {n: self.typed(n, getattr(making, n), kind) for n in words.split()}
        names |= {n: getattr(self, n) for n in _METHODS.split()}
        tril, triu, diag = (names[f"{n}_indices"] for n in ("tril", "triu", "diag"))
        names["tril_indices_from"] = lambda arr, k=0: tril(arr.shape[0], k, arr.shape[1])
        names["triu_indices_from"] = lambda arr, k=0: triu(arr.shape[0], k, arr.shape[1])
        names["diag_indices_from"] = lambda arr: diag(arr.shape[0], arr.ndim)
        return names
