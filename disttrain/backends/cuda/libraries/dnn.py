"""Convolutions by cuDNN: for given shapes, types and settings a plan is looked for once and kept.

What is right is decided by the settings of ``device/precision.py``: engines whose results change
from run to run are left out unless ``deterministic`` is False, TF32 where it is not allowed, and
inputs made narrower always. Of what is left the library's first is taken, or with ``benchmark`` the
fastest of those tried. Where it has no way, ``conv`` gives None, and its caller has another.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...device.determinism import are_deterministic_algorithms_enabled
from ...device.precision import convolution_setting
from . import cudnn as c
from .cudnn import Cudnn, CudnnError

_KINDS = {"forward": c.FORWARD, "input_grad": c.INPUT_GRAD, "weight_grad": c.WEIGHT_GRAD}
_OUTPUT = {"forward": "y", "input_grad": "x", "weight_grad": "w"}
_IDS = {"x": 1, "w": 2, "y": 3}
_CONFIGS = 16  # of the library's suggestions


@dataclass(frozen=True, slots=True)
class Side:
    """A tensor of a convolution: sizes and strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What a plan is for; ``exact``: the same bits on each run; ``tf32``: it is allowed."""

    kind: str
    dtype: str
    x: Side
    w: Side
    y: Side
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    exact: bool
    tf32: bool

    def unwanted(self) -> set[int]:
        """Notes of engines that must not serve it."""
        out = {c.DOWN_CONVERT} if self.dtype in ("float32", "float64") else set()
        if self.exact:
            out.add(c.NONDETERMINISTIC)
        if self.dtype == "float32" and not self.tf32:
            out.add(c.TENSOR_CORE)
        return out


@dataclass(slots=True)
class _Plan:
    descriptor: int
    workspace: int


@dataclass(slots=True)
class _Own:
    """What one thread has on one device: handles are not shared."""

    handle: int
    plans: dict[tuple, _Plan | None] = field(default_factory=dict)


class Dnn:
    """Convolutions of one CuPy by one library."""

    def __init__(self, cupy: Any, lib: Any) -> None:
        self.xp, self.calls = cupy, Cudnn(lib)
        self._local = threading.local()

    def conv(
        self, kind: str, x: Any, w: Any, y: Any, stride: tuple, padding: tuple, dilation: tuple
    ) -> bool:
        """Write one of the three: y of x and w ("forward"), x of y and w ("input_grad"), w of x
        and y ("weight_grad"). False: the library has no way, or is not to be used."""
        if not convolution_setting("enabled") or x.dtype.name not in c.TYPES:
            return False
        if not (x.size and w.size and y.size):
            return False
        arrays = {"x": x, "w": w, "y": y}
        for name, a in arrays.items():
            if name != _OUTPUT[kind] and not _dense(a):
                arrays[name] = self.xp.ascontiguousarray(a)
        problem = _problem(kind, arrays, stride, padding, dilation)
        own = self._own()
        self.calls.use(own.handle, self.xp.cuda.get_current_stream().ptr)
        pointers = {name: a.data.ptr for name, a in arrays.items()}
        trying = convolution_setting("benchmark") and not self._recording()
        limit = convolution_setting("benchmark_limit") if trying else None
        key = (problem, limit)
        if key not in own.plans:
            own.plans[key] = self._chosen(own, problem, pointers, limit)
        plan = own.plans[key]
        if plan is None:
            return False
        self._execute(own, plan, pointers)
        return True

    def _recording(self) -> bool:
        return self.xp.cuda.get_current_stream().is_capturing()

    def _own(self) -> _Own:
        by_device = self._local.__dict__
        device = self.xp.cuda.runtime.getDevice()
        own = by_device.get(f"device{device}")
        if own is None:
            own = by_device[f"device{device}"] = _Own(self.calls.handle())
        return own

    def _execute(self, own: _Own, plan: _Plan, pointers: dict[str, int]) -> None:
        space = self.xp.cuda.alloc(plan.workspace) if plan.workspace else None
        pack = self.calls.make(
            c.PACK,
            (c.PACK_IDS, c.INT64, [_IDS[name] for name in pointers]),
            (c.PACK_POINTERS, c.POINTER, list(pointers.values())),
            (c.PACK_WORKSPACE, c.POINTER, [0 if space is None else space.ptr]),
        )
        try:
            self.calls.execute(own.handle, plan.descriptor, pack)
        finally:
            self.calls.free(pack)

    # -- plans --------------------------------------------------------------------------------

    def _chosen(
        self, own: _Own, problem: Problem, pointers: dict[str, int], limit: int | None
    ) -> _Plan | None:
        """The first plan that there is; with ``limit``, the fastest of so many (0: of all)."""
        try:
            found = self._plans(own, problem)
            if limit is None:
                return next(found, None)
            timed: list[tuple[float, int, _Plan]] = []
            for plan in found:
                took = self._timed(own, plan, pointers)
                if took is not None:
                    timed.append((took, len(timed), plan))
                if len(timed) == limit:
                    break
        except CudnnError:  # the library knows no such convolution
            return None
        timed.sort(key=lambda t: t[:2])
        self.calls.free(*(plan.descriptor for _, _, plan in timed[1:]))
        return timed[0][2] if timed else None

    def _timed(self, own: _Own, plan: _Plan, pointers: dict[str, int]) -> float | None:
        """Milliseconds of the second of two runs; None where it does not run."""
        start, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        try:
            self._execute(own, plan, pointers)
            start.record()
            self._execute(own, plan, pointers)
        except CudnnError:
            self.calls.free(plan.descriptor)
            return None
        end.record()
        end.synchronize()
        return self.xp.cuda.get_elapsed_time(start, end)

    def _plans(self, own: _Own, problem: Problem) -> Iterator[_Plan]:
        """Plans that may serve, the best guess first."""
        graph, parts = self._graph(own, problem)
        try:
            unwanted = problem.unwanted()
            for mode in (c.HEUR_A, c.HEUR_FALLBACK):
                yield from self._suggested(own, graph, mode, unwanted)
        finally:
            self.calls.free(graph, *reversed(parts))

    def _suggested(self, own: _Own, graph: int, mode: int, unwanted: set[int]) -> Iterator[_Plan]:
        calls = self.calls
        asked = calls.make(
            c.HEURISTICS, (c.HEUR_GRAPH, c.DESCRIPTOR, [graph]), (c.HEUR_MODE, c.HEURISTIC, [mode])
        )
        blank = [calls.blank(c.ENGINE_CONFIG) for _ in range(_CONFIGS)]
        try:
            for config in calls.get(asked, c.HEUR_RESULTS, c.DESCRIPTOR, _CONFIGS, blank):
                if unwanted & self._notes(config):
                    continue
                try:
                    plan = calls.make(
                        c.PLAN,
                        (c.PLAN_HANDLE, c.HANDLE, [own.handle]),
                        (c.PLAN_CONFIG, c.DESCRIPTOR, [config]),
                    )
                except CudnnError:  # not on this device
                    continue
                size = calls.get(plan, c.PLAN_WORKSPACE, c.INT64, 1)[0]
                yield _Plan(plan, size)
        finally:
            calls.free(asked, *blank)

    def _notes(self, config: int) -> set[int]:
        engine = self.calls.blank(c.ENGINE)
        try:
            self.calls.get(config, c.CONFIG_ENGINE, c.DESCRIPTOR, 1, [engine])
            return set(self.calls.get(engine, c.ENGINE_NOTES, c.NOTE, c.NOTES))
        finally:
            self.calls.free(engine)

    def _graph(self, own: _Own, problem: Problem) -> tuple[int, list[int]]:
        """A graph of one operation, and the descriptors that it is made of."""
        parts: list[int] = []

        def made(kind: int, *attributes: tuple[int, int, Sequence]) -> int:
            parts.append(self.calls.make(kind, *attributes))
            return parts[-1]

        try:
            names = c.OPERATIONS[_KINDS[problem.kind]]
            tensors = {
                name: made(c.TENSOR, *_tensor(problem, getattr(problem, name), _IDS[name]))
                for name in _IDS
            }
            conv = made(c.CONVOLUTION, *_convolution(problem))
            number = c.DOUBLE if problem.dtype == "float64" else c.FLOAT
            operation = made(
                _KINDS[problem.kind],
                (names["conv"], c.DESCRIPTOR, [conv]),
                *((names[name], c.DESCRIPTOR, [tensor]) for name, tensor in tensors.items()),
                (names["alpha"], number, [1.0]),
                (names["beta"], number, [0.0]),
            )
            graph = self.calls.make(
                c.GRAPH,
                (c.GRAPH_HANDLE, c.HANDLE, [own.handle]),
                (c.GRAPH_OPERATIONS, c.DESCRIPTOR, [operation]),
            )
        except CudnnError:
            self.calls.free(*reversed(parts))
            raise
        return graph, parts


def _tensor(problem: Problem, side: Side, number: int) -> tuple:
    return (
        (c.TENSOR_TYPE, c.DATA_TYPE, [c.TYPES[problem.dtype]]),
        (c.TENSOR_SIZES, c.INT64, side.shape),
        (c.TENSOR_STRIDES, c.INT64, side.strides),
        (c.TENSOR_ID, c.INT64, [number]),
        (c.TENSOR_ALIGNMENT, c.INT64, [side.alignment]),
    )


def _convolution(problem: Problem) -> tuple:
    compute = c.TYPES["float64" if problem.dtype == "float64" else "float32"]
    return (
        (c.CONV_DIMS, c.INT64, [len(problem.stride)]),
        (c.CONV_TYPE, c.DATA_TYPE, [compute]),
        (c.CONV_MODE, c.MODE, [c.CROSS_CORRELATION]),
        (c.CONV_PRE, c.INT64, problem.padding),
        (c.CONV_POST, c.INT64, problem.padding),
        (c.CONV_DILATIONS, c.INT64, problem.dilation),
        (c.CONV_STRIDES, c.INT64, problem.stride),
    )


def _problem(
    kind: str, arrays: dict[str, Any], stride: tuple, padding: tuple, dilation: tuple
) -> Problem:
    """Rows (N, C, L) are taken as images of one line: cuDNN begins with two dimensions."""
    row = arrays["x"].ndim == 3
    sides = {name: _side(a, row) for name, a in arrays.items()}
    if row:
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    return Problem(
        kind=kind, dtype=arrays["x"].dtype.name, stride=tuple(stride), padding=tuple(padding),
        dilation=tuple(dilation), exact=_exact(), tf32=convolution_setting("allow_tf32"), **sides,
    )  # fmt: skip


def _exact() -> bool:
    """Whether results must have the same bits on each run."""
    return convolution_setting("deterministic") or are_deterministic_algorithms_enabled()


def _side(a: Any, row: bool) -> Side:
    shape, strides = a.shape, tuple(s // a.dtype.itemsize for s in a.strides)
    if row:
        shape, strides = (
            (*shape[:2], 1, shape[2]),
            (*strides[:2], strides[2] * shape[2], strides[2]),
        )
    alignment = a.dtype.itemsize
    while alignment < 16 and a.data.ptr % (alignment * 2) == 0:
        alignment *= 2
    return Side(tuple(shape), strides, alignment)


def _dense(a: Any) -> bool:
    """Whether it lies as (N, C, ...) or as (N, ..., C) without gaps."""
    if a.flags.c_contiguous:
        return True
    step = a.dtype.itemsize
    for axis in (1, *range(a.ndim - 1, 1, -1), 0):
        if a.strides[axis] != step:
            return False
        step *= a.shape[axis]
    return True
