"""Ufuncs as CuPy has them: its loops, its arguments, its few ``reduce``, ``accumulate``, ``at``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .signatures import Unsupported, choose, dtype_of, table
from .work import Work

ADD_AT = {"add": "iIqQlLefd", "subtract": "iI", "maximum": "iIlLqQfd", "minimum": "iIlLqQfd"}
ADD_AT |= dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), "iIlLqQ")
REDUCES = {"add": "sum", "multiply": "prod"}
ACCUMULATES = {"add": "cumsum", "multiply": "cumprod"}


class Ufunc:
    """``xp.add`` and so on."""

    def __init__(self, platform: Any, name: str) -> None:
        self.platform, self.name = platform, name
        self.__name__ = name
        self.numpy = getattr(np, name)
        self.nin, self.nout = self.numpy.nin, self.numpy.nout

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.name not in table()["ufuncs"]:  # matmul
            return self.platform.xp.function(self.name)(*args, **kwargs)
        work = Work(self.platform, self.name)
        dtype, casting = kwargs.pop("dtype", None), kwargs.pop("casting", "same_kind")
        outs = kwargs.pop("out", None)
        if kwargs:
            raise Unsupported(f"cupy.{self.name}: wrong arguments {sorted(kwargs)}")
        ins, rest = args[: self.nin], args[self.nin :]
        if len(ins) < self.nin or (rest and outs is not None):
            raise Unsupported(f"cupy.{self.name}: wrong number of arguments")
        outs = rest or (outs if isinstance(outs, tuple) else () if outs is None else (outs,))
        outs = (*outs, *[None] * (self.nout - len(outs)))
        hidden = [work.operand(a) for a in ins]
        targets = [None if o is None else work.target(o) for o in outs]
        taken, given = choose(self.name, ins, dtype)
        self._check(hidden, targets, given, casting)
        return self._run(work, hidden, outs, targets, (taken, given))

    def _check(self, hidden: list, targets: list, given: tuple, casting: str) -> None:
        shape = np.broadcast_shapes(*(np.shape(a) for a in hidden))
        for t, kind in zip(targets, given):
            if t is not None and t.shape != np.broadcast_shapes(shape, t.shape):
                raise ValueError(f"cupy.{self.name}: out has shape {t.shape}, not {shape}")
            if t is not None and not np.can_cast(kind, t.dtype, casting):
                raise Unsupported(f"cupy.{self.name}: results of {kind} cannot go to {t.dtype}")

    def _run(self, work: Work, hidden: list, outs: Any, targets: list, op: Any) -> Any:
        taken, given = op

        def compute() -> Any:
            results = self.numpy(*[_as(a, t) for a, t in zip(hidden, taken)])
            results = results if isinstance(results, tuple) else (results,)
            typed = [np.asarray(r).astype(k, copy=False) for r, k in zip(results, given)]
            if any(t is not None for t in targets):
                for i, t in enumerate(targets):
                    if t is not None:
                        t[...] = typed[i]
                        typed[i] = None
            return tuple(typed)

        found = work.run(compute)
        found = [o if o is not None else f for f, o in zip(found, outs)]
        return found[0] if self.nout == 1 else tuple(found)

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None,
               keepdims: bool = False) -> Any:  # fmt: skip
        if self.name not in REDUCES:
            raise Unsupported(f"`{self.name}.reduce` is not supported by CuPy")
        return self.platform.xp.function(REDUCES[self.name])(array, axis, dtype, out, keepdims)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        if self.name not in ACCUMULATES:
            raise Unsupported(f"`{self.name}.accumulate` is not supported by CuPy")
        return self.platform.xp.function(ACCUMULATES[self.name])(array, axis, dtype, out)

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None,
                 out: Any = None) -> Any:  # fmt: skip
        if self.name != "add" or dtype is not None or out is not None:
            raise Unsupported(f"`{self.name}.reduceat` is not supported by CuPy with these")
        work = Work(self.platform, "add.reduceat")
        a, at = work.hidden(array), work.hidden(indices)
        return work.run(lambda: np.add.reduceat(a, at, axis))

    def outer(self, a: Any, b: Any, **kwargs: Any) -> Any:
        a, b = a.reshape(a.shape + (1,) * b.ndim), b.reshape((1,) * a.ndim + b.shape)
        return self(a, b, **kwargs)

    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        if a.dtype.char not in ADD_AT.get(self.name, ""):
            raise Unsupported(f"cupy.{self.name}.at has no way for {a.dtype}")
        work = Work(self.platform, f"{self.name}.at")
        target, at = work.target(a), work.hidden(indices)
        by = work.operand(b)
        self.platform.counts.unordered += target.dtype.kind == "f"  # whole numbers mind no order
        work.run(lambda: self.numpy.at(target, at, by))


def _as(value: Any, kind: np.dtype) -> Any:
    """An operand in the type of the loop."""
    if isinstance(value, np.ndarray):
        return value.astype(kind, copy=False)
    return dtype_of(kind).type(value)
