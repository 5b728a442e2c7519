"""Where elements come from: memory, functions, numbers, files."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ...core import Tensor
from ...errors import ConfigError, DTypeError, ShapeError
from ...tfrecord import opened
from .elements import Nested, as_leaf, copied, flatten, form, lower
from .specs import INFINITE, TEXT, TensorSpec, fits, spec_of, trailing
from .stage import Pass, Stage, State


class _Numbered(Pass):
    """Elements by their number."""

    def __init__(self, element: Callable[[int], Any], count: int) -> None:
        self._element, self._count, self.at = element, count, 0

    def next(self) -> Any:
        if self.at >= self._count:
            raise StopIteration
        self.at += 1
        return self._element(self.at - 1)

    def state(self) -> State:
        return {"at": self.at}

    def restore(self, state: State) -> None:
        self.at = state["at"]


class Slices(Stage):
    """The rows of arrays."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = lower(arrays)
        leaves, self._build = flatten(self.arrays)
        sizes = [tuple(x.shape)[:1] for x in leaves]
        if not sizes or () in sizes or len(set(sizes)) > 1:
            first = [s[0] for s in sizes if s]
            other = next((n for n in first if n != first[0]), None)
            told = (
                "" if other is None else f"Dimensions {first[0]} and {other} are not compatible: "
            )
            raise ShapeError(
                f"Pipeline.from_tensor_slices: {told}arrays of shapes "
                f"{[list(x.shape) for x in leaves]} given; one or more with the same first size "
                "are needed, of rank >= 1"
            )
        self._leaves, self._count = leaves, int(sizes[0][0])

    def begin(self) -> Pass:
        return _Numbered(lambda i: self._build([_row(x, i) for x in self._leaves]), self._count)

    def cardinality(self) -> int:
        return self._count

    def spec(self) -> Any:
        return trailing(spec_of(self.arrays))


def _row(leaf: Any, i: int) -> Any:
    if isinstance(leaf, Tensor):
        return leaf[i].clone()
    row = leaf[i]
    if leaf.dtype == object and leaf.ndim == 1:
        out = np.empty((), object)
        out[()] = row
        return out
    return np.array(row)


class Listed(Stage):
    """The elements of a list."""

    def __init__(self, elements: list) -> None:
        self.elements, self._spec = elements, None

    def promise(self, spec: Any) -> None:
        """Say what the elements look like, of which these are some."""
        self._spec = spec

    def begin(self) -> Pass:
        return _Numbered(lambda i: copied(self.elements[i]), len(self.elements))

    def cardinality(self) -> int:
        return len(self.elements)

    def spec(self) -> Any:
        if self._spec is None:
            if not self.elements:
                raise ConfigError("Pipeline: no elements, so nothing is known of their shapes")
            return spec_of(self.elements[0])
        return self._spec


class Range(Stage):
    """Whole numbers, as Python's range."""

    def __init__(self, numbers: range, dtype: Any = np.int64) -> None:
        self._numbers, self._dtype = numbers, np.dtype(dtype)

    def begin(self) -> Pass:
        return _Numbered(lambda i: np.asarray(self._numbers[i], self._dtype), len(self._numbers))

    def cardinality(self) -> int:
        return len(self._numbers)

    def spec(self) -> Any:
        return TensorSpec((), self._dtype)


class Counted(Stage):
    """Numbers without end."""

    def __init__(self, start: Any, step: Any, dtype: Any) -> None:
        self._start, self._step, self._dtype = start, step, np.dtype(dtype)

    def begin(self) -> Pass:
        at = lambda i: np.asarray(self._start + i * self._step, self._dtype)  # noqa: E731
        return _Numbered(at, 1 << 62)

    def cardinality(self) -> int:
        return INFINITE

    def spec(self) -> Any:
        return TensorSpec((), self._dtype)


class Generated(Stage):
    """What a function's iterator gives; a position is reached by passing over what was given."""

    def __init__(self, make: Callable[[], Iterable], signature: Any = None) -> None:
        if not callable(make):
            raise ConfigError(
                f"Pipeline.from_generator: {type(make).__name__} given; a function without "
                "arguments that returns an iterable is needed (each iteration calls it again)"
            )
        self._make, self._signature = make, signature

    def begin(self) -> Pass:
        return _GeneratedPass(self._make, self._signature)

    def spec(self) -> Any:
        if self._signature is not None:
            return self._signature
        begun = self.begin()
        try:
            return spec_of(begun.next())
        except StopIteration:
            raise ConfigError("Pipeline.from_generator: it gives no element") from None
        finally:
            begun.close()


class _GeneratedPass(Pass):
    def __init__(self, make: Callable[[], Iterable], signature: Any) -> None:
        self._make, self._signature = make, signature
        self._iterator: Iterator | None = None
        self._given, self._ended = 0, False

    def next(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._iterator is None:
            self._iterator = iter(self._make())
        try:
            value = next(self._iterator)
        except BaseException:
            self._ended = True
            raise
        self._given += 1
        return self._checked(value)

    def _checked(self, value: Any) -> Any:
        if self._signature is None:
            return lower(value)
        if isinstance(self._signature, tuple) and isinstance(value, list):
            value = tuple(value)
        (leaves, build), specs = flatten(value), flatten(self._signature)[0]
        if len(specs) != len(leaves):
            raise ShapeError(
                f"Pipeline.from_generator: element {self._given - 1} does not fit: the expected "
                f"structure is {form(self._signature)}; {value!r} was given"
            )
        value = build([self._typed(x, s) for x, s in zip(leaves, specs, strict=True)])
        element = lower(value)
        wrong = fits(self._signature, element)
        if wrong is not None:
            raise ShapeError(
                f"Pipeline.from_generator: element {self._given - 1} does not fit its signature: "
                f"{wrong}"
            )
        return element

    def _typed(self, value: Any, spec: Any) -> Any:
        """A leaf in the type of its spec."""
        if not isinstance(spec, TensorSpec) or isinstance(value, (Nested, Tensor)):
            return value
        try:
            if spec.dtype == TEXT:
                return as_leaf(value)
            return np.asarray(value).astype(spec.dtype, copy=False)
        except (TypeError, ValueError) as error:
            raise DTypeError(
                f"Pipeline.from_generator: element {self._given - 1} could not be converted to the "
                f"expected type {spec.dtype}: {value!r}"
            ) from error

    def state(self) -> State:
        return {"given": self._given, "ended": self._ended}

    def restore(self, state: State) -> None:
        for _ in range(state["given"]):
            try:
                self.next()
            except StopIteration:
                break
        self._given, self._ended = state["given"], state["ended"]

    def close(self) -> None:
        self._ended = True
        ended: Any = self._iterator
        self._iterator = None
        if hasattr(ended, "close"):
            ended.close()


class Files(Stage):
    """What readers find in files, one after the other. ``reader(path, place)`` gives pairs of an
    element and the place after it; it begins at ``place``, 0 being the beginning."""

    def __init__(
        self, source: Stage, reader: Callable[[str, int], Iterator[tuple[Any, int]]], spec: Any
    ) -> None:
        self.inputs, self._reader, self._spec = (source,), reader, spec

    def begin(self) -> Pass:
        return _FilesPass(self.inputs[0].begin(), self._reader)

    def spec(self) -> Any:
        return self._spec


class _FilesPass(Pass):
    def __init__(self, paths: Pass, reader: Callable[[str, int], Iterator]) -> None:
        self._paths, self._reader = paths, reader
        self._path: str | None = None
        self._place = 0
        self._open: Any = None

    def next(self) -> Any:
        while True:
            if self._path is None:
                self._path, self._place = os.fsdecode(self._paths.next().item()), 0
            if self._open is None:
                self._open = self._reader(self._path, self._place)
            try:
                element, self._place = next(self._open)
            except StopIteration:
                self._path = self._open = None
                continue
            except Exception:
                self._path = self._open = None  # the next file can be asked for
                raise
            return lower(element)

    def state(self) -> State:
        return {"paths": self._paths.state(), "path": self._path, "place": self._place}

    def restore(self, state: State) -> None:
        self._paths.restore(state["paths"])
        self._path, self._place = state["path"], state["place"]

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        self._paths.close()


def matching(patterns: Any) -> list[str]:
    """The files that match, sorted; an error where none does."""
    leaf = lower(patterns)
    told = [os.fsdecode(p) for p in np.atleast_1d(leaf).reshape(-1).tolist()]
    found = sorted({path for pattern in told for path in glob.glob(pattern)})
    if not found:
        raise ConfigError(f"Pipeline.list_files: no files match {', '.join(told)}")
    return found


def lines(path: str, place: int, compression: str = "") -> Iterator[tuple[Any, int]]:
    """The lines of a file, without their ends."""
    with opened(path, "rb", compression) as file:
        file.seek(place)
        while line := file.readline():
            place += len(line)
            yield line.removesuffix(b"\n").removesuffix(b"\r"), place
