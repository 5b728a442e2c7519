"""The double's array module: CuPy's functions by CuPy's parameters, computed by numpy's on hidden
memory. What CuPy does otherwise than numpy is said here, function by function."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .indexing import as_strided, put_along_axis, take
from .memory import poison
from .signatures import BFLOAT16, Unsupported, bind, choose, dtype_of, loops, table
from .ufuncs import Ufunc
from .work import HostUse, Work

# Answered without a look at the numbers.
ABOUT = {
    *("shape", "ndim", "size", "result_type", "can_cast", "may_share_memory", "isscalar"),
    *("iscomplexobj", "isrealobj", "broadcast_shapes", "common_type", "min_scalar_type"),
    *("promote_types",),
}
# Make views where they can; these use no memory then.
VIEWS = {
    *("reshape", "ravel", "transpose", "moveaxis", "rollaxis", "swapaxes", "broadcast_to"),
    *("broadcast_arrays", "squeeze", "expand_dims", "split", "array_split", "hsplit", "vsplit"),
    *("dsplit", "flip", "flipud", "fliplr", "rot90", "diagonal", "real", "imag", "atleast_1d"),
    *("atleast_2d", "atleast_3d", "permute_dims", "matrix_transpose", "linalg.matrix_transpose"),
    *("diag", "lib.stride_tricks.as_strided"),
}
# Keep the order of memory of what they are given.
KEEPS_ORDER = {"copy", "empty_like", "zeros_like", "ones_like", "full_like"}
# The host waits inside them, for the size of a result or for an error, as their docstrings and
# sources say; ``where`` does with one argument.
WAITS = {
    *("nonzero", "flatnonzero", "argwhere", "unique", "unique_values", "unique_counts", "average"),
    *("unique_inverse", "unique_all", "extract", "compress", "bincount", "histogram", "trim_zeros"),
    *("histogram2d", "histogramdd", "setdiff1d", "intersect1d", "union1d", "setxor1d", "roots"),
    *("percentile", "quantile", "choose", "linalg.lstsq", "linalg.eig", "linalg.eigvals", "delete"),
    *("place", "interp", "ix_", "mask_indices", "nanmax", "nanmin", "ravel_multi_index", "put"),
    *("unravel_index", "real_if_close", "asarray_chkfinite", "linalg.matrix_rank"),
}
# The first parameter of these names takes an array, or arrays; CuPy asks it for its attributes.
ARRAYS = {
    *("a", "x", "array", "arr", "condition", "m", "x1", "ar", "ary", "tup", "arrays", "seq"),
    *("prototype", "v", "xi", "input", "arrs", "c", "b"),
}
HALF_SUMS = {"sum", "mean", "prod", "var", "std", "nansum", "nanmean", "nanprod"}  # in float32
# Not for bfloat16: the libraries that do it (thrust, CUB's scans) have no such type.
NO_BFLOAT16 = {
    *("sort", "argsort", "lexsort", "partition", "argpartition", "unique", "searchsorted", "msort"),
    *("cumsum", "cumprod", "median", "percentile", "quantile", "bincount", "histogram", "digitize"),
    *("interp", "var", "std", "nanvar", "nanstd", "diff", "convolve", "corrcoef", "cov"),
}
WRITES = {"copyto": "dst", "put": "a", "fill_diagonal": "a", "putmask": "a", "place": "arr"}
SIZED = {"empty", "zeros", "ones", "full"}
MAKES = {"array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "require"}
OWN: dict[str, Callable[..., Any]] = {
    "lib.stride_tricks.as_strided": as_strided,
    "put_along_axis": put_along_axis,
    "take": take,
}
REFUSED = {
    "asnumpy": "use Platform.download",
    "vectorize": "", "apply_along_axis": "", "apply_over_axes": "", "piecewise": "",
    "save": "", "savez": "", "load": "", "loadtxt": "", "genfromtxt": "", "savetxt": "",
    "frombuffer": "", "fromfile": "", "fromfunction": "", "fromiter": "", "fromstring": "",
    "array2string": "", "array_repr": "", "array_str": "", "format_float_positional": "",
    "shares_memory": "it computes on the device, and waits",
}  # fmt: skip


class Function:
    """``xp.name``."""

    def __init__(self, platform: Any, name: str) -> None:
        self.platform, self.name = platform, name
        self.__name__ = name.rpartition(".")[2]
        where: Any = np
        for part in name.split("."):
            where = getattr(where, part, None)
        self.numpy = where

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.name
        if name in REFUSED:
            raise HostUse(f"cupy.{name} is not for work on a device {REFUSED[name]}".rstrip())
        if name in ABOUT:
            return self.numpy(*[_described(a) for a in args], **kwargs)
        bound = bind("functions", name, args, kwargs)
        if self.numpy is None:
            raise Unsupported(f"cupy.{name}: numpy has none, and the double knows no better")
        self._check_first(bound)
        work = Work(self.platform, name)
        if name in WAITS or (name == "where" and "x" not in bound):
            self.platform.synchronized(f"cupy.{name}")
        if name in OWN:
            return OWN[name](work, **bound)
        if name in MAKES:
            return self._make(work, bound)
        return self._run(work, args, kwargs, bound)

    def _check_first(self, bound: dict) -> None:
        first = next(iter(bound.items()), None)
        if first is None or first[0] not in ARRAYS or self.name in MAKES:
            return
        given = first[1] if isinstance(first[1], (list, tuple)) else [first[1]]
        for value in given:
            if value.__class__ is not self.platform.array_type:
                raise HostUse(f"cupy.{self.name}: {first[0]} is {type(value).__name__}, no array")

    def _run(self, work: Work, args: tuple, kwargs: dict, bound: dict) -> Any:
        written = WRITES.get(self.name, "out")
        target = bound.get(written)
        kind = dtype_of(bound["dtype"]) if bound.get("dtype") is not None else None
        if self.name in SIZED and kind is not None:
            self.platform.room(bound["shape"], kind)
        if target is not None:
            work.target(target)
        plain = [work.hidden(a) for a in args]
        named = {k: work.hidden(v) for k, v in kwargs.items()}
        self._check_types([*plain, *named.values()])
        order = "K" if self.name in KEEPS_ORDER else "C"
        compute = functools.partial(self.numpy, *plain, **named)
        if self.name in ("empty", "empty_like"):
            compute = functools.partial(_unwritten, compute)
        if self.name in table()["inner"]:
            compute = self._inner(compute, bound)
        elif self.name == "broadcast_to":
            compute = functools.partial(_unlocked, compute)
        elif self.name in HALF_SUMS and plain[0].dtype == BFLOAT16:
            compute = functools.partial(self._in_float32, plain, named)
        found = work.run(compute, self.name in VIEWS, order)
        return target if target is not None and written == "out" else found

    def _check_types(self, given: list) -> None:
        kinds = {a.dtype for g in given for a in (g if isinstance(g, (list, tuple)) else [g])
                 if isinstance(a, np.ndarray)}  # fmt: skip
        half = BFLOAT16 in kinds or np.dtype(np.float16) in kinds
        if self.name in NO_BFLOAT16 and BFLOAT16 in kinds:
            raise Unsupported(f"cupy.{self.name} has no way for bfloat16")
        if self.name.startswith(("linalg.", "fft.")) and half and self.name != "linalg.norm":
            raise Unsupported(f"cupy.{self.name} has no way for half types")

    def _inner(self, compute: Callable[[], Any], bound: dict) -> Callable[[], Any]:
        """For a function that is a ufunc inside: results in the type of its loop."""
        count = len(loops(self.name, "inner")[0][0])
        values = list(bound.values())[:count]
        if self.name == "where" and len(values) == 3:
            values[0] = True
        known = [v for v in values if v is not None]
        if self.name == "clip":
            known += [known[0]] * (count - len(known))
        if len(known) != count:
            return compute
        (given,) = choose(self.name, tuple(known), what="inner")[1]
        return lambda: np.asarray(compute()).astype(given, copy=False)

    def _in_float32(self, plain: list, named: dict) -> Any:
        """bfloat16 is added up in float32, and rounded once."""
        kind = plain[0].dtype
        found = self.numpy(plain[0].astype(np.float32), *plain[1:], **named)
        return found if named.get("dtype") or named.get("out") is not None else found.astype(kind)

    def _make(self, work: Work, bound: dict) -> Any:
        source = bound.pop("object", bound.pop("a", None))
        if source.__class__ is not self.platform.array_type:
            raise HostUse(
                f"cupy.{self.name} of {type(source).__name__} would copy from the host; use "
                "Platform.upload, or full()"
            )
        copy, dtype = bound.pop("copy", self.name == "array"), bound.pop("dtype", None)
        if not self.name.startswith("asc"):
            order = bound.pop("order", None) or "K"
        else:
            order = "C"
        if order == "C" and not source.flags.c_contiguous:
            copy = True
        if dtype is None or dtype_of(dtype) == source.dtype:
            return source.copy(order=order) if copy else source
        return source.astype(dtype, order=order)


def _unwritten(make: Callable[[], np.ndarray]) -> np.ndarray:
    made = make()
    poison(made)
    return made


def _unlocked(make: Callable[[], np.ndarray]) -> np.ndarray:
    """CuPy's views of repeated elements can be written to, as all of its arrays."""
    made = make()
    with contextlib.suppress(ValueError):  # over memory that was locked on purpose
        made.flags.writeable = True
    return made


def _described(value: Any) -> Any:
    hidden = getattr(value, "_hidden", None)
    return value if hidden is None else hidden


class ArrayModule:
    """``platform.xp``, or a module in it."""

    def __init__(self, platform: Any, room: str = "") -> None:
        self._platform, self._room = platform, room
        self._found: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._room}.{name}" if self._room else name
        record = table()
        if full in ("linalg", "fft", "lib", "lib.stride_tricks"):
            found: Any = ArrayModule(self._platform, full)
        elif full in record["ufuncs"] or full == "matmul":
            found = Ufunc(self._platform, name)
        elif full in record["functions"]:
            found = Function(self._platform, full)
        elif full == "ndarray":
            found = self._platform.array_type
        elif full in record["types"] or full in ("pi", "e", "inf", "nan", "newaxis"):
            found = getattr(np, name)
        else:
            raise AttributeError(f"module 'cupy{self._room and '.'}{self._room}' has no {name}")
        setattr(self, name, found)
        return found

    def function(self, name: str) -> Function:
        """The function, where a ufunc has its name."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = Function(self._platform, name)
        return found
