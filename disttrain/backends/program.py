"""A kernel as something to call: generated code where possible, numpy where not.

    p = Program(kernel)
    p(x, out)                        # any strides and floats; results go into the arrays it writes
    p.fast(x, out) is None and p.slow(x, out)      # the same, without a Python frame in between
    sets_of(kernel, sets, counters)(given, count, scalars)       # one call for many sets of arrays
    run = p.steps(first, rest)       # run(0) on arrays, run(k) on those at k - 1 of ``rest``

``fast`` does nothing and returns None unless every array is a contiguous ndarray of the declared
type, every scalar a Python float, and the work too little for several threads. ``slow`` takes the
same arguments in any layout, and the raw arrays of an accelerator, whose platform then runs the
kernel. Machine code is made when the first arrays of the host's come.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from . import threads
from .addresses import address
from .device.platform import Platform, platform_of
from .lang.interpret import run, storage
from .lang.kernel import Array, Kernel, check, sees_row
from .llvm import partition
from .llvm.ir import default_access
from .llvm.many import HEAD, fits, given
from .llvm.native import Built, Unavailable, build, build_many
from .llvm.wrap import DESC_ARRAY, DESC_HEAD, MAX_DIMS, work


class Program:
    """One kernel, ready to be called. ``native`` says whether it runs as generated code."""

    def __init__(self, kernel: Kernel, native: bool = True) -> None:
        check(kernel)
        self.kernel = kernel
        self.access = default_access(kernel)
        self.whole = kernel.flat and sees_row(kernel)
        self.cost = partition.work(kernel)
        self.variants: dict[str, Built] = {}
        self.at = next(k for k, p in enumerate(kernel.params) if isinstance(p, Array))
        self._why_not: str | None = None if native else "numpy was asked for"
        self.fast: Callable[..., Any] = self._first if native else _refuse

    @property
    def native(self) -> bool:
        return not self.why_not

    @property
    def why_not(self) -> str:
        """Why it does not run as generated code; empty where it does."""
        return self._build() if self._why_not is None else self._why_not

    def _build(self) -> str:
        why_not = ""
        try:
            self.fast = self._variant(self.access).fast
        except Unavailable as e:
            self.fast, why_not = _refuse, str(e)
        self._why_not = why_not
        return why_not

    def _first(self, *args: object) -> Any:
        """``fast`` until arrays of the host's come."""
        where = _platform(args)
        if where is not None:
            where.launch(self.kernel, args)
            return True
        self._build()
        return self.fast(*args)

    def _variant(self, access: dict[str, str]) -> Built:
        key = "".join(access.values())
        if key not in self.variants:
            self.variants[key] = build(self.kernel, access)
        return self.variants[key]

    def __call__(self, *args: Any) -> None:
        if self.fast(*args) is None:
            self.slow(*args)

    def slow(self, *args: object) -> None:
        """Run with arrays of any strides, and broadcasting in a flat kernel."""
        if args[self.at].__class__ is not np.ndarray:
            where = _platform(args)
            if where is not None:
                where.launch(self.kernel, args)
                return
        args = tuple(np.asarray(a) if isinstance(a, np.generic) else a for a in args)
        views = self._views(args)
        if any(0 in v.shape for v in views):
            return
        if not self.native:
            run(self.kernel, args)
        elif self.whole and not all(v.flags.c_contiguous for v in self._full(views)):
            self._run_on_copies(args, views)
        else:
            general, desc = self._described(args)
            parts = partition.parts(self.kernel, desc, self.cost)
            threads.spread([partial(general, part) for part in parts])

    def steps(self, first: tuple, rest: tuple) -> Callable[[int], None]:
        """One call for each of many steps, in any order, at the price of a call alone. ``rest``:
        the arrays of later steps have an axis of steps in front. All must live as long as it."""

        def plain(k: int) -> None:
            self(*(first if k == 0 else [a[k - 1] for a in rest]))

        alike = all(
            a.__class__ is b.__class__ is np.ndarray
            and a.shape == b.shape[1:]
            and a.strides == b.strides[1:]
            for a, b in zip(first, rest, strict=True)
        )
        if not alike or not self.native or not first[0].size:
            return plain
        run, desc = self._described(first)
        if len(partition.parts(self.kernel, desc, self.cost)) > 1:
            return plain
        table = np.tile(desc, (1 + len(rest[0]), 1))  # addresses alone differ
        later = np.arange(len(rest[0]))
        for k, a in enumerate(rest):
            table[1:, DESC_HEAD + DESC_ARRAY * k] = address(a) + later * a.strides[0]
        rows = list(table)
        return lambda k: run(rows[k])

    def _described(self, args: Sequence[Any]) -> tuple[Callable, np.ndarray]:
        """The code for arrays of these layouts, and what it is given."""
        views = self._views(args)
        plan = _flat_plan if self.kernel.flat else _row_plan
        dims, strides = plan(views, self._lead(views))
        built = self._variant(self._access(views, [s[-1] for s in strides]))
        return built.general, self._describe(args, views, dims, strides)

    def _full(self, views: list[np.ndarray]) -> list[np.ndarray]:
        return [v for p, v in zip(self.kernel.arrays, views) if p.space == "full"]

    def _lead(self, views: list[np.ndarray]) -> np.ndarray:
        """The array whose order in memory is followed: the first that is written."""
        full = [(p, v) for p, v in zip(self.kernel.arrays, views) if p.space == "full"]
        return next((v for p, v in full if p.writes), full[0][1])

    def _run_on_copies(self, args: tuple, views: list[np.ndarray]) -> None:
        """For a kernel that needs its arrays in one row, where memory does not have them so."""
        arrays = iter(views)
        new, back = [], []
        for p, a in zip(self.kernel.params, args):
            view = next(arrays) if isinstance(p, Array) else None
            if view is None or not isinstance(p, Array) or p.space != "full":
                new.append(a)
                continue
            new.append(np.ascontiguousarray(view).reshape(-1))
            if p.writes:
                back.append((a, new[-1]))
        self(*new)
        for a, result in back:
            a[...] = result.reshape(a.shape)

    def _views(self, args: Sequence[Any]) -> list[np.ndarray]:
        """Every array as (row axes..., columns), all of one shape; strides 0 where repeated."""
        kernel = self.kernel
        given = [(p, a) for p, a in zip(kernel.params, args) if isinstance(p, Array)]
        for p, a in given:
            if not isinstance(a, np.ndarray) or a.dtype != storage(p.dtype):
                got = getattr(a, "dtype", type(a).__name__)
                raise DTypeError(
                    f"kernel {kernel.name}: {p.name} is {got}; an array of {p.dtype} is needed"
                )
        if len(args) != len(kernel.params):
            raise TypeError(
                f"kernel {kernel.name}: {len(args)} arguments, {len(kernel.params)} needed"
            )
        shapes = [a.shape for p, a in given if p.space == "full"]
        try:
            shape = np.broadcast_shapes(*shapes) or (1,)
        except ValueError:
            raise ShapeError(
                f"kernel {kernel.name}: arrays of shapes {', '.join(map(str, shapes))}; they must "
                "be equal, or have 1 where they differ"
            ) from None
        return [self._view(p, a, shape) for p, a in given]

    def _view(self, p: Array, a: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        wanted = {"full": a.shape, "row": shape[:-1], "col": shape[-1:]}.get(p.space)
        fits = a.size == 1 if wanted is None else math.prod(wanted) == a.size
        if p.every and self.native:
            raise ShapeError(
                f"kernel {self.kernel.name}: {p.name} has a line for {p.every} rows each, which "
                "asks for arrays that are contiguous"
            )
        if p.writes and p.space == "full":
            fits = a.shape == shape or (a.ndim == 0 and shape == (1,))
        if not fits or (p.writes and not a.flags.writeable):
            problem = f"shape {a.shape}" if not fits else "read-only"
            raise ShapeError(
                f"kernel {self.kernel.name}: {p.name} ({p.space}) is {problem}; "
                f"needed is what fits {shape}{', writeable' if p.writes else ''}"
            )
        if p.space == "one":
            a = a.reshape(()) if a.size == 1 else a
        elif p.space == "row":
            a = a.reshape(shape[:-1])[..., None]
        return np.broadcast_to(a, shape) if a.shape != shape else a

    def _access(self, views: list[np.ndarray], steps: list[int]) -> dict[str, str]:
        access = {}
        for p, v, step in zip(self.kernel.arrays, views, steps):
            kind = "c" if step == v.itemsize else "b" if step == 0 and not p.writes else "s"
            access[p.name] = self.access[p.name] if self.access[p.name] == "b" else kind
        return access

    def _describe(
        self,
        args: Sequence[Any],
        views: list[np.ndarray],
        dims: list[int],
        strides: list[list[int]],
    ) -> np.ndarray:
        """The description that ``general`` reads (see ``wrap.py``)."""
        scalars = [float(a) for p, a in zip(self.kernel.params, args) if not isinstance(p, Array)]
        rows = dims[:-1]
        if len(rows) > MAX_DIMS:
            raise ShapeError(
                f"kernel {self.kernel.name}: arrays of {len(rows)} axes that cannot be merged; "
                f"at most {MAX_DIMS} are handled. Make them contiguous first"
            )
        words = [math.prod(dims), len(rows), dims[-1], math.prod(rows[:-1]), *_padded(rows)]
        for v, steps in zip(views, strides):
            words += [address(v), steps[-1], *_padded(steps[:-1])]
        assert len(words) == DESC_HEAD + DESC_ARRAY * len(views)
        return np.array([*words, *np.array(scalars, np.float64).view(np.int64)], np.int64)


class Sets:
    """A flat kernel that writes to all its arrays but one, for several sets of arrays by one call
    (``llvm/many.py``): ``Sets(kernel, sets, counters)(given, count, scalars)``.

    ``sets``: the arrays that are written to, in order, contiguous and of their types; ``counters``:
    a float32 array of one element for each set, or None. ``given``: the array that is read, per
    set; ``count``: what the counters are to hold. False where nothing was done.
    """

    def __init__(
        self, kernel: Kernel, sets: Sequence[Sequence[np.ndarray]], counters: Sequence | None
    ) -> None:
        self.many = build_many(kernel, default_access(kernel))
        self.kept = sets, counters  # their addresses stand in the table
        self.pack = struct.Struct(f"{HEAD - 1 + len(kernel.scalars)}d").pack_into
        words = [len(sets), 0, *[0] * len(kernel.scalars)]
        for arrays, counter in zip(sets, counters or [None] * len(sets), strict=True):
            places = [_address(a) for a in arrays]
            places.insert(given(kernel), 0)
            words += [arrays[0].size, 0 if counter is None else _address(counter), *places]
        self.words = np.array(words, np.int64)

    def __call__(self, given: Sequence[np.ndarray], count: float, scalars: tuple) -> bool:
        words = self.words.copy()  # of this call: other threads may be in another one
        self.pack(words.data, 8, count, *scalars)
        return self.many(words, *given) is not None


def sets_of(
    kernel: Kernel, sets: Sequence[Sequence[np.ndarray]], counters: Sequence | None
) -> Sets | None:
    """``Sets``, where the arrays and this machine are as it takes."""
    arrays = [a for a in kernel.arrays if a.writes]
    if not fits(kernel) or any(len(each) != len(arrays) for each in sets):
        return None
    for each in sets:
        if any(not _is_plain(x, p.dtype, each[0].shape) for x, p in zip(each, arrays, strict=True)):
            return None
        if each[0].size * work(kernel) >= partition.SPLIT_WORK and threads.count() > 1:
            return None
    if counters is not None:
        places = {_address(c) for c in counters}
        if len(places) < len(sets) or not all(_is_plain(c, "float32", ()) for c in counters):
            return None
    try:
        return Sets(kernel, sets, counters)
    except Unavailable:
        return None


def _is_plain(a: np.ndarray, kind: str, shape: tuple) -> bool:
    flags = a.flags
    there = a.__class__ is np.ndarray and a.dtype.name == kind and a.shape == shape
    return there and flags.c_contiguous and flags.aligned and flags.writeable


def _address(a: np.ndarray) -> int:
    address: int = a.__array_interface__["data"][0]
    return address


def _platform(args: tuple) -> Platform | None:
    """Where the arguments lie, if on an accelerator."""
    for a in args:
        found = platform_of(a)
        if found is not None:
            return found
    return None


def _refuse(*args: float | np.ndarray) -> None:
    """``fast`` where there is no generated code."""


def _padded(values: list[int]) -> list[int]:
    return [*values, *[0] * (MAX_DIMS - len(values))]


Plan = tuple[list[int], list[list[int]]]


def _row_plan(views: list[np.ndarray], lead: np.ndarray) -> Plan:
    """Sizes and each array's strides over the row axes, merged where possible, then the columns."""
    axes = range(lead.ndim - 1)
    dims, strides = _merge(views, list(axes))
    dims, strides = ([1], [[0] for _ in views]) if not dims else (dims, strides)
    dims.append(lead.shape[-1])
    for v, steps in zip(views, strides):
        steps.append(v.strides[-1])
    return dims, strides


def _flat_plan(views: list[np.ndarray], lead: np.ndarray) -> Plan:
    """As ``_row_plan``, with the axes in the order of memory and the innermost as the columns."""
    axes = sorted(range(lead.ndim), key=lambda axis: -abs(lead.strides[axis]))
    dims, strides = _merge(views, axes)
    dims, strides = ([1], [[v.itemsize] for v in views]) if not dims else (dims, strides)
    if len(dims) == 1:
        return [1, *dims], [[0, *steps] for steps in strides]
    return dims, strides


def _merge(views: list[np.ndarray], axes: list[int]) -> Plan:
    """Join neighbouring axes that every array walks in one stride; drop axes of one element."""
    dims: list[int] = []
    strides: list[list[int]] = [[] for _ in views]
    for axis in axes:
        n, steps = views[0].shape[axis], [v.strides[axis] for v in views]
        if n == 1:
            continue
        if dims and all(s[-1] == step * n for s, step in zip(strides, steps)):
            dims[-1] *= n
            for s, step in zip(strides, steps):
                s[-1] = step
        else:
            dims.append(n)
            for s, step in zip(strides, steps):
                s.append(step)
    return dims, strides
