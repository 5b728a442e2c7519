"""Stages that put elements together: batches, padded batches, windows, groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ConfigError, ShapeError
from ...partial_shape import PartialShape
from .elements import arguments, flatten, form, lower, map_leaves, stack
from .elementwise import rows
from .specs import UNKNOWN, PipelineSpec, TensorSpec, leading
from .stage import Pass, Stage, State, Through, call, number, packed, probe, raw_call, unpacked


class Batched(Stage):
    """``size`` elements stacked; the last may have fewer. ``pad``: None, or (shapes, values)."""

    def __init__(self, source: Stage, size: int, drop_remainder: bool, pad: Any = None) -> None:
        self.inputs, self._size, self._drop, self._pad = (source,), size, drop_remainder, pad

    def begin(self) -> Pass:
        return _BatchedPass(self.inputs[0].begin(), self._size, self._drop, self._pad)

    def cardinality(self) -> int:
        return batches(self.inputs[0].cardinality(), self._size, self._drop)

    def spec(self) -> Any:
        spec = self.inputs[0].spec()
        if self._pad is not None:
            spec = _padded_spec(spec, self._pad[0])
        return leading(spec, self._size if self._drop else None)


def batches(count: int, size: int, drop: bool) -> int:
    """How many batches so many elements make."""
    if count < 0:
        return count
    return count // size if drop else -(-count // size)


class _BatchedPass(Through):
    def __init__(self, source: Pass, size: int, drop: bool, pad: Any) -> None:
        super().__init__(source)
        self._size, self._drop, self._pad = size, drop, pad

    def next(self) -> Any:
        elements: list = []
        while len(elements) < self._size:
            try:
                elements.append(self.source.next())
            except StopIteration:
                break
        if not elements or (self._drop and len(elements) < self._size):
            raise StopIteration
        return together(elements) if self._pad is None else padded(elements, *self._pad)


def together(elements: list) -> Any:
    """One batch of elements of the same structure and shapes."""
    leaves, build = flatten(elements[0])
    columns = [leaves] + [flatten(e)[0] for e in elements[1:]]
    for i, e in enumerate(elements):
        if len(columns[i]) != len(leaves):
            raise ShapeError(
                f"Pipeline.batch: element {i} has the structure {form(e)}, element 0 "
                f"{form(elements[0])}; they must be equal"
            )
    return build([_stacked(list(column)) for column in zip(*columns, strict=True)])


def _stacked(column: list) -> Any:
    if hasattr(column[0], "packed"):
        raise ConfigError("Pipeline.batch: elements that are pipelines themselves cannot be "
                          "stacked; batch them inside: flat_map(lambda w: w.batch(n))")  # fmt: skip
    try:
        return stack(column)
    except (ValueError, RuntimeError):
        shapes = [list(x.shape) for x in column]
        wrong = next((i for i, s in enumerate(shapes) if s != shapes[0]), None)
        if wrong is None:
            raise
        raise ShapeError(
            f"Pipeline.batch: element {wrong} has shape {shapes[wrong]}, element 0 has "
            f"{shapes[0]}; they must be equal: pad or crop them in map, or use padded_batch"
        ) from None


# --- padding --------------------------------------------------------------------------------------


def _shapes_for(leaves: list, shapes: Any) -> list:
    if shapes is None:
        return [None] * len(leaves)
    told = _tops(shapes)
    if len(told) != len(leaves):
        raise ConfigError(
            f"Pipeline.padded_batch: {len(told)} padded shapes given for elements of "
            f"{len(leaves)} arrays"
        )
    return told


def _tops(shapes: Any) -> list:
    """The shapes of a structure: a sequence (or a tensor) of sizes is one."""
    if isinstance(shapes, PartialShape):
        return [None if shapes.rank is None else tuple(shapes.as_list())]
    if hasattr(shapes, "numpy"):
        shapes = shapes.numpy().tolist()
    if isinstance(shapes, dict):
        return [s for part in shapes.values() for s in _tops(part)]
    if isinstance(shapes, tuple) and not all(n is None or isinstance(n, (int, np.integer))
                                             for n in shapes):  # fmt: skip
        return [s for part in shapes for s in _tops(part)]
    return [shapes if shapes is None else tuple(None if n in (None, -1) else int(n)
                                                for n in shapes)]  # fmt: skip


def padded(elements: list, shapes: Any, values: Any) -> Any:
    """One batch of elements that are filled up to one shape."""
    first_leaves, build = flatten(elements[0])
    columns = list(zip(*[flatten(e)[0] for e in elements], strict=True))
    told = _shapes_for(first_leaves, shapes)
    fills = [None] * len(columns) if values is None else flatten(lower(values))[0]
    if len(fills) == 1:
        fills = fills * len(columns)
    return build([_filled(list(c), s, v) for c, s, v in zip(columns, told, fills, strict=True)])


def _filled(column: list, shape: Any, value: Any) -> np.ndarray:
    arrays = [np.asarray(x) if isinstance(x, np.ndarray) else x.cpu().numpy() for x in column]
    dims = {x.ndim for x in arrays} | ({len(shape)} if shape is not None else set())
    if len(dims) > 1:
        raise ShapeError(
            f"Pipeline.padded_batch: elements of shapes {[list(x.shape) for x in arrays]}, padded "
            f"shape {shape}; all need the same number of dimensions"
        )
    sizes = np.max([x.shape for x in arrays], axis=0).astype(int).tolist()
    for i, n in enumerate(shape or ()):
        if n is not None and n < sizes[i]:
            raise ShapeError(
                f"Pipeline.padded_batch: an element of size {sizes[i]} in dimension {i} given; the "
                f"padded shape allows {n} at most"
            )
        sizes[i] = sizes[i] if n is None else n
    text = arrays[0].dtype == object
    fill = (b"" if text else 0) if value is None else np.asarray(value).item()
    out = np.empty((len(arrays), *sizes), arrays[0].dtype)
    out.fill(fill)
    for i, x in enumerate(arrays):
        place: Any = (i, *[slice(0, n) for n in x.shape])
        out[place] = x if x.ndim or not text else x.item()
    return out


def _padded_spec(spec: Any, shapes: Any) -> Any:
    leaves, build = flatten(spec)
    out = []
    for s, told in zip(leaves, _shapes_for(leaves, shapes), strict=True):
        shape = told if told is not None else None if s.shape is None else s.shape
        out.append(TensorSpec(shape, s.dtype))
    return build(out)


def bounded(told: Any, size: int) -> Any:
    """Padded shapes (or a spec) whose unknown sizes are ``size``."""
    leaves = flatten(told)[0] if _is_spec(told) else None
    shapes = [s.shape for s in leaves] if leaves is not None else _tops(told)
    out = [tuple(size if n is None or n == -1 else n for n in shape) for shape in shapes]
    return out[0] if len(out) == 1 else tuple(out)


def _is_spec(told: Any) -> bool:
    return all(isinstance(s, TensorSpec) for s in flatten(told)[0])


# --- windows --------------------------------------------------------------------------------------


class Windowed(Stage):
    """Pipelines of ``size`` elements each (every ``stride``-th), ``shift`` apart."""

    def __init__(self, source: Stage, size: int, shift: int, stride: int, drop: bool) -> None:
        self.inputs, self._told = (source,), (size, shift, stride, drop)

    def begin(self) -> Pass:
        return _WindowedPass(self.inputs[0].begin(), *self._told)

    def cardinality(self) -> int:
        count = self.inputs[0].cardinality()
        size, shift, stride, drop = self._told
        if count < 0:
            return count
        if drop:
            span = (size - 1) * stride + 1
            return 0 if count < span else (count - span) // shift + 1
        return -(-count // shift)

    def spec(self) -> Any:
        return map_leaves(PipelineSpec, self.inputs[0].spec())


class _WindowedPass(Through):
    numbers = ("over",)

    def __init__(self, source: Pass, size: int, shift: int, stride: int, drop: bool) -> None:
        super().__init__(source)
        self._size, self._shift, self._stride, self._drop = size, shift, stride, drop
        self._buffer: list = []
        self.over = 0  # elements to be passed over before the buffer begins

    def next(self) -> Any:
        span = (self._size - 1) * self._stride + 1
        while self.over:
            self.source.next()
            self.over -= 1
        try:
            while len(self._buffer) < span:
                self._buffer.append(self.source.next())
        except StopIteration:
            if not self._buffer or (self._drop and len(self._buffer) < span):
                raise
        found = self._buffer[: span : self._stride]
        self.over = max(0, self._shift - len(self._buffer))
        del self._buffer[: self._shift]
        leaves, build = flatten(found[0])
        if len(leaves) == 1:
            return build([Stage.nested([flatten(e)[0][0] for e in found])])
        columns = zip(*[flatten(e)[0] for e in found], strict=True)
        return build([Stage.nested(list(column)) for column in columns])

    def state(self) -> State:
        return {**super().state(), "buffer": packed(self._buffer)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._buffer = unpacked(state["buffer"])


# --- groups ---------------------------------------------------------------------------------------


class Grouped(Stage):
    """Elements of one key, as many as its window has room for, through a function of a pipeline."""

    def __init__(
        self,
        source: Stage,
        key: Callable[..., Any],
        reduce: Callable[[Any, Any], Any],
        size: Callable[[Any], Any],
    ) -> None:
        self.inputs, self._told = (source,), (key, reduce, size)

    def begin(self) -> Pass:
        return _GroupedPass(self.inputs[0].begin(), *self._told)

    def cardinality(self) -> int:
        return UNKNOWN

    def spec(self) -> Any:
        key, reduce, _ = self._told
        spec = self.inputs[0].spec()

        def made(element: Any) -> Any:
            group = Stage.nested([element])
            group.stage.promise(spec)
            return reduced(reduce, call(key, element), group).spec()

        return probe(made, self.inputs[0])


def reduced(reduce: Callable[[Any, Any], Any], key: Any, group: Any) -> Stage:
    """The stage that the program's function makes of a group."""
    made = raw_call(reduce, (arguments(key)[0], group))
    return stage_of(made, "group_by_window")


def stage_of(made: Any, where: str) -> Stage:
    """The stage of a pipeline that a function returned."""
    stage = getattr(made, "stage", None)
    if not isinstance(stage, Stage):
        raise TypeError(
            f"Pipeline.{where}: the function returned {type(made).__name__}; a pipeline is needed"
        )
    return stage


class _GroupedPass(Through):
    def __init__(self, source: Pass, key: Any, reduce: Any, size: Any) -> None:
        super().__init__(source)
        self._key, self._reduce, self._size = key, reduce, size
        self._groups: dict[int, list] = {}
        self._ended = False
        self._out: tuple[int, list, Pass] | None = None  # the group that is given out

    def next(self) -> Any:
        while True:
            if self._out is not None:
                try:
                    return self._out[2].next()
                except StopIteration:
                    self._close_group()
            self._give(*self._next_group())

    def _next_group(self) -> tuple[int, list]:
        while not self._ended:
            try:
                element = self.source.next()
            except StopIteration:
                self._ended = True
                break
            key = number(call(self._key, element))
            size = number(lower(raw_call(self._size, arguments(np.asarray(key, np.int64)))))
            if size < 1:
                raise ConfigError(f"Pipeline.group_by_window: a window of {size} elements; 1 or "
                                  "more are needed")  # fmt: skip
            group = self._groups.setdefault(key, [])
            group.append(element)
            if len(group) >= size:
                return key, self._groups.pop(key)
        if not self._groups:
            raise StopIteration
        key = min(self._groups)
        return key, self._groups.pop(key)

    def _give(self, key: int, group: list) -> None:
        made = reduced(self._reduce, np.asarray(key, np.int64), Stage.nested(group))
        self._out = (key, group, made.begin())

    def _close_group(self) -> None:
        if self._out is not None:
            self._out[2].close()
            self._out = None

    def state(self) -> State:
        groups = [[key, packed(group)] for key, group in self._groups.items()]
        out = None
        if self._out is not None:
            out = [self._out[0], packed(self._out[1]), self._out[2].state()]
        return {**super().state(), "groups": groups, "ended": self._ended, "out": out}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._groups = {key: unpacked(group) for key, group in state["groups"]}
        self._ended = state["ended"]
        if state["out"] is not None:
            key, group, inner = state["out"]
            self._give(key, unpacked(group))
            assert self._out is not None
            self._out[2].restore(inner)

    def close(self) -> None:
        self._close_group()
        super().close()


# --- batches of another size ----------------------------------------------------------------------


class Rebatched(Stage):
    """Batches cut and joined to ``sizes``, in turn; the last may have fewer rows."""

    def __init__(self, source: Stage, sizes: list[int], drop: bool) -> None:
        self.inputs, self._sizes, self._drop = (source,), sizes, drop

    def begin(self) -> Pass:
        return _RebatchedPass(self.inputs[0].begin(), self._sizes, self._drop)

    def spec(self) -> Any:
        spec = self.inputs[0].spec()
        size = self._sizes[0] if self._drop and len(set(self._sizes)) == 1 else None
        return map_leaves(
            lambda s: TensorSpec(None if s.shape is None else (size, *s.shape[1:]), s.dtype), spec
        )


class _RebatchedPass(Through):
    numbers = ("turn",)

    def __init__(self, source: Pass, sizes: list[int], drop: bool) -> None:
        super().__init__(source)
        self._sizes, self._drop, self.turn = sizes, drop, 0
        self._rest: Any = None

    def next(self) -> Any:
        size = self._sizes[self.turn]
        pieces, found = [], 0
        while found < size:
            try:
                batch = self.source.next() if self._rest is None else self._rest
            except StopIteration:
                break
            n = rows(flatten(batch)[0], "rebatch")
            use = min(n, size - found)
            pieces.append(cut(batch, 0, use))
            self._rest = cut(batch, use, n) if use < n else None
            found += use
        if not found or (self._drop and found < size):
            raise StopIteration
        self.turn = (self.turn + 1) % len(self._sizes)
        return joined(pieces)

    def state(self) -> State:
        return {**super().state(), "rest": packed([] if self._rest is None else [self._rest])}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._rest = next(iter(unpacked(state["rest"])), None)


def cut(batch: Any, start: int, stop: int) -> Any:
    """Rows of a batch."""
    return map_leaves(lambda x: x[start:stop], batch)


def joined(pieces: list) -> Any:
    """The rows of all, one after the other."""
    if len(pieces) == 1:
        return map_leaves(lambda x: x.copy() if isinstance(x, np.ndarray) else x.clone(), pieces[0])
    build = flatten(pieces[0])[1]
    columns = zip(*[flatten(p)[0] for p in pieces], strict=True)
    return build([np.concatenate([_host(x) for x in column]) for column in columns])


def _host(leaf: Any) -> np.ndarray:
    out: np.ndarray = leaf if isinstance(leaf, np.ndarray) else leaf.cpu().numpy()
    return out


class Shared(Stage):
    """The rows of each batch that are one rank's, of ``count`` ranks: equal parts, in order; the
    first ones have a row more where they do not come out even. A rank may get none."""

    def __init__(self, source: Stage, count: int, index: int) -> None:
        self.inputs, self._count, self._index = (source,), count, index

    def begin(self) -> Pass:
        return _SharedPass(self.inputs[0].begin(), self._count, self._index)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def spec(self) -> Any:
        spec = self.inputs[0].spec()

        def part(s: TensorSpec) -> TensorSpec:
            if not s.shape:
                return s
            n = s.shape[0]
            return TensorSpec((None if n is None else len(share(n, self._count, self._index)),
                               *s.shape[1:]), s.dtype)  # fmt: skip

        return map_leaves(part, spec)


def share(n: int, count: int, index: int) -> range:
    """The rows of ``n`` that are those of rank ``index`` of ``count``."""
    each, more = divmod(n, count)
    start = index * each + min(index, more)
    return range(start, start + each + (index < more))


class _SharedPass(Through):
    def __init__(self, source: Pass, count: int, index: int) -> None:
        super().__init__(source)
        self._count, self._index = count, index

    def next(self) -> Any:
        batch = self.source.next()
        mine = share(rows(flatten(batch)[0], "distribute"), self._count, self._index)
        return cut(batch, mine.start, mine.stop)
