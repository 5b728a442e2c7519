"""``StrictArray``: an array of a device that is not there. It has what ``cupy.ndarray`` has, and
refuses to be read by the host."""

from __future__ import annotations

import operator
from typing import Any, NoReturn

import numpy as np

from . import indexing
from .memory import Memory
from .signatures import Unsupported, bind, dtype_of, table
from .work import HostUse, Work


class Flags:
    """``c_contiguous``, ``f_contiguous`` and ``owndata``, and no more, as CuPy has them."""

    def __init__(self, hidden: np.ndarray, own: bool) -> None:
        self.c_contiguous, self.f_contiguous = hidden.flags.c_contiguous, hidden.flags.f_contiguous
        self.owndata, self.fnc = own, hidden.flags.fnc
        self.forc = hidden.flags.forc

    def __getitem__(self, name: str) -> bool:
        names = {"C_CONTIGUOUS": self.c_contiguous, "F_CONTIGUOUS": self.f_contiguous}
        return {**names, "OWNDATA": self.owndata}[name]


class Device:
    """``array.device``."""

    def __init__(self, index: int) -> None:
        self.id = index

    def __int__(self) -> int:
        return self.id


class Pointer:
    """``array.data``."""

    def __init__(self, hidden: np.ndarray, memory: Memory) -> None:
        self.ptr = hidden.__array_interface__["data"][0]
        self.mem, self.device_id = memory, memory.ledger.index


class StrictArray:
    """``_hidden``: the numbers, for the double alone."""

    __slots__ = ("__weakref__", "_hidden", "_memory", "_orphan")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, hidden: np.ndarray, memory: Memory, orphan: bool = False) -> None:
        self._hidden, self._memory = hidden, memory
        self._orphan = orphan  # a view that names no base, as CuPy's as_strided makes them

    # -- what it is ---------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._hidden.shape

    dtype = property(operator.attrgetter("_hidden.dtype"))
    strides = property(operator.attrgetter("_hidden.strides"))
    ndim = property(operator.attrgetter("_hidden.ndim"))
    size = property(operator.attrgetter("_hidden.size"))
    itemsize = property(operator.attrgetter("_hidden.itemsize"))
    nbytes = property(operator.attrgetter("_hidden.nbytes"))

    @property
    def flags(self) -> Flags:
        return Flags(self._hidden, self._hidden is self._memory.owner)

    @property
    def device(self) -> Device:
        return Device(self._memory.ledger.index)

    @property
    def data(self) -> Pointer:
        return Pointer(self._hidden, self._memory)

    @property
    def base(self) -> StrictArray | None:
        owner = self._memory.owner
        alone = self._orphan or self._hidden is owner
        return None if alone else StrictArray(owner, self._memory)

    @property
    def T(self) -> StrictArray:
        return self.transpose()

    @property
    def mT(self) -> StrictArray:
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> StrictArray:
        return self if self.dtype.kind != "c" else StrictArray(self._hidden.real, self._memory)

    @property
    def imag(self) -> StrictArray:
        if self.dtype.kind != "c":
            return self._memory.platform.xp.zeros(self.shape, self.dtype)
        return StrictArray(self._hidden.imag, self._memory)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"StrictArray({self.shape}, {self.dtype}, device {self._memory.ledger.index})"

    # -- numpy's protocols --------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        known = table()
        name = ufunc.__name__
        if name not in known["ufuncs"] and name != "matmul":
            return NotImplemented
        out = kwargs.get("out")
        if out is not None and len(out) == 1:
            kwargs["out"] = out[0]
        elif out is not None:
            raise ValueError("The 'out' parameter must have exactly one array value")
        mine = getattr(self._memory.platform.xp, name)
        return (mine if method == "__call__" else getattr(mine, method))(*inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        where: Any = self._memory.platform.xp
        try:
            for part in (*func.__module__.split(".")[1:], func.__name__):
                where = getattr(where, part)
        except AttributeError:
            return NotImplemented
        if not all(issubclass(t, (StrictArray, np.ndarray)) for t in types):
            return NotImplemented
        return where(*args, **kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise HostUse(
            f"an array of device {self._memory.ledger.index}, shape {self.shape}, was made numpy's "
            "(CuPy: Implicit conversion to a NumPy array is not allowed)"
        )

    def _read(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise HostUse(
            f"an array of device {self._memory.ledger.index}, shape {self.shape}, was read by the "
            "host, which waits for the device then; use Platform.download"
        )

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __iter__ = __bytes__ = _read
    __contains__ = __format__ = __reduce__ = __reduce_ex__ = __deepcopy__ = __copy__ = _read
    item = tolist = tobytes = tofile = dump = dumps = get = set = _read  # type: ignore[assignment]

    # -- indexing -----------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        return indexing.get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        indexing.put(self, index, value)

    # -- methods that are not just numpy's ------------------------------------------------------

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> StrictArray:
        kind = dtype_of(dtype)
        if not copy and kind == self.dtype:
            return self
        work = Work(self._memory.platform, "astype")
        hidden = work.hidden(self)
        return work.run(lambda: hidden.astype(kind, order=order), order="K")

    def view(self, dtype: Any = None) -> StrictArray:
        hidden = self._hidden
        return StrictArray(hidden.view(hidden.dtype if dtype is None else dtype_of(dtype)),
                           self._memory)  # fmt: skip

    def fill(self, value: Any) -> None:
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        work = Work(self._memory.platform, "sort")
        hidden = work.target(self)
        work.run(lambda: hidden.sort(axis=axis, kind=kind))

    def flatten(self, order: str = "C") -> StrictArray:
        return self.copy(order).reshape(-1, order=order)

    def conj(self) -> StrictArray:
        return self._memory.platform.xp.conj(self) if self.dtype.kind == "c" else self

    conjugate = conj

    def dot(self, b: Any, out: Any = None) -> Any:
        return self._memory.platform.xp.dot(self, b, out)

    def take(self, indices: Any, axis: Any = None, out: Any = None) -> Any:
        return self._memory.platform.xp.take(self, indices, axis, out)

    def nonzero(self) -> Any:
        return self._memory.platform.xp.nonzero(self)


def _method(name: str) -> Any:
    """The method of that name: what CuPy's function of the name does, with a method's arguments."""

    def call(self: StrictArray, *args: Any, **kwargs: Any) -> Any:
        bound = bind("methods", name, args, kwargs)
        function = self._memory.platform.xp.function(name)
        if name == "reshape":
            shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
            return function(self, shape, **kwargs)
        if name == "transpose":
            axes = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
            return function(self, tuple(axes) or None)
        if name == "clip":
            return function(self, bound.get("min"), bound.get("max"), out=bound.get("out"))
        return function(self, **bound)

    call.__name__ = name
    return call


for _name in (
    *("all", "any", "argmax", "argmin", "argpartition", "argsort", "clip", "copy", "cumprod"),
    *("cumsum", "diagonal", "max", "mean", "min", "prod", "ptp"),
    *("ravel", "repeat", "reshape", "round", "searchsorted", "squeeze", "std", "sum", "swapaxes"),
    *("trace", "transpose", "var"),
):
    setattr(StrictArray, _name, _method(_name))


def _operators() -> None:
    binary = {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
        "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "and": "bitwise_and",
        "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
        "matmul": "matmul",
    }  # fmt: skip
    compares = {
        "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
        "eq": "equal", "ne": "not_equal",
    }  # fmt: skip

    def defers(other: Any) -> bool:
        return getattr(type(other), "__array_ufunc__", 0) is None

    def forward(name: str) -> Any:
        def call(self: Any, other: Any) -> Any:
            if defers(other):
                return NotImplemented
            return getattr(self._memory.platform.xp, name)(self, other)

        return call

    def backward(name: str) -> Any:
        return lambda self, other: getattr(self._memory.platform.xp, name)(other, self)

    def in_place(name: str) -> Any:
        return lambda self, other: getattr(self._memory.platform.xp, name)(self, other, out=self)

    for short, name in binary.items():
        setattr(StrictArray, f"__{short}__", forward(name))
        setattr(StrictArray, f"__r{short}__", backward(name))
        setattr(StrictArray, f"__i{short}__", in_place(name))
    for short, name in compares.items():
        setattr(StrictArray, f"__{short}__", forward(name))
    for short, name in {"neg": "negative", "pos": "positive", "abs": "absolute",
                        "invert": "invert"}.items():  # fmt: skip
        setattr(StrictArray, f"__{short}__",
                lambda self, name=name: getattr(self._memory.platform.xp, name)(self))  # fmt: skip


_operators()
__all__ = ["Flags", "StrictArray", "Unsupported"]
