"""Stages that keep elements: in memory, or in a file.

A cache is whole or not there: who reads to the end makes it, who stops before leaves nothing. A
file has the bytes of the elements, each behind its length; it gets its name when it is whole,
so passes of several processes may make it at once.
"""

from __future__ import annotations

import os
import struct
from typing import IO, Any

from ...errors import ConfigError, SerializationError
from .elements import copied, decode, encode
from .specs import spec_of
from .stage import Pass, Stage, State, Through, packed, unpacked

_MAGIC, _SIZE = b"disttrain pipeline 1\n", struct.Struct("<Q")
_END = (1 << 64) - 1


class Cached(Stage):
    """In memory: kept with the pipeline."""

    def __init__(self, source: Stage) -> None:
        self.inputs = (source,)
        self.kept: list | None = None

    def begin(self) -> Pass:
        return _CachedPass(self)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()


class _CachedPass(Pass):
    def __init__(self, stage: Cached) -> None:
        self._stage, self._at = stage, 0
        self._list = stage.kept
        self._new: list = []
        self._source = None if self._list is not None else stage.inputs[0].begin()

    def next(self) -> Any:
        if self._source is not None:
            try:
                element = self._source.next()
            except StopIteration:
                self._stage.kept = self._list = self._new
                self._at = len(self._new)
                self.close()
                raise
            self._new.append(element)
            return copied(element)
        assert self._list is not None
        if self._at >= len(self._list):
            raise StopIteration
        self._at += 1
        return copied(self._list[self._at - 1])

    def state(self) -> State:
        if self._source is None:
            return {"at": self._at, "kept": packed(self._list or []), "source": None}
        return {"at": 0, "kept": packed(self._new), "source": self._source.state()}

    def restore(self, state: State) -> None:
        kept = unpacked(state["kept"])
        if state["source"] is None:
            self.close()
            self._list, self._at = kept, state["at"]
            if self._stage.kept is None:
                self._stage.kept = kept
            return
        if self._source is None:
            self._source = self._stage.inputs[0].begin()
        self._new = kept
        self._source.restore(state["source"])

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None


class FileCached(Stage):
    """In the file ``path``, which later runs read, too."""

    def __init__(self, source: Stage, path: str) -> None:
        self.inputs, self._path = (source,), path

    def begin(self) -> Pass:
        if os.path.exists(self._path):
            return Reading(self._path)
        return _WritingPass(self.inputs[0].begin(), self._path)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()


class _WritingPass(Through):
    numbers = ("given",)

    def __init__(self, source: Pass, path: str) -> None:
        super().__init__(source)
        self._path, self._part = path, f"{path}.part-{os.getpid()}-{id(self):x}"
        self._file: IO[bytes] | None = None
        self._whole = False
        self.given = 0
        self._then: Reading | None = None

    def next(self) -> Any:
        if self._then is not None:
            return self._then.next()
        if self._file is None and not self._whole:
            self._open()
        try:
            element = self.source.next()
        except StopIteration:
            self._finish()
            raise
        write(self._file, element)
        self.given += 1
        return element

    def _open(self) -> None:
        try:
            os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
            self._file = open(self._part, "wb")  # noqa: SIM115  (for the whole pass)
        except OSError as error:
            raise ConfigError(f"Pipeline.cache: {self._path} cannot be written: {error}") from None
        self._file.write(_MAGIC)

    def _finish(self) -> None:
        if self._file is not None:
            self._file.write(_SIZE.pack(_END))
            self._file.close()
            os.replace(self._part, self._path)
            self._file, self._whole = None, True

    def state(self) -> State:
        if self._then is not None:
            return {**self._then.state(), "source": None}
        return super().state()

    def restore(self, state: State) -> None:
        if state["source"] is None:
            self._then = Reading(self._path)
            self._then.restore(state)
            return
        for _ in range(state["given"]):  # the file begins at the first element
            self.next()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            os.unlink(self._part)
            self._file = None
        if self._then is not None:
            self._then.close()
        super().close()

    def __del__(self) -> None:
        if self._file is not None:
            self.close()


def write(file: Any, element: Any) -> None:
    """Append an element."""
    data = encode(element)
    file.write(_SIZE.pack(len(data)))
    file.write(data)


class Reading(Pass):
    """The elements of a file that a cache or ``save`` has written."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: IO[bytes] | None = open(path, "rb")  # noqa: SIM115  (for the whole pass)
        if self._file.read(len(_MAGIC)) != _MAGIC:
            self.close()
            raise SerializationError(f"Pipeline: {path} is no file of a pipeline's elements")

    def next(self) -> Any:
        if self._file is None:
            raise StopIteration
        (size,) = _SIZE.unpack(self._bytes(_SIZE.size))
        if size == _END:
            self.close()
            raise StopIteration
        return decode(self._bytes(size), Stage.nested)

    def _bytes(self, size: int) -> bytes:
        assert self._file is not None
        data = self._file.read(size)
        if len(data) != size:
            raise SerializationError(f"Pipeline: {self._path} ends within an element")
        return data

    def state(self) -> State:
        return {"place": None if self._file is None else self._file.tell(), "source": None}

    def restore(self, state: State) -> None:
        place = state.get("place")
        if "place" not in state:  # of a pass that was writing it: the file has become whole since
            for _ in range(state["given"]):
                self.next()
        elif place is None:
            self.close()
        elif self._file is not None:
            self._file.seek(place)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Stored(Stage):
    """The elements that ``save`` wrote into a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        Reading(path).close()

    def begin(self) -> Pass:
        return Reading(self._path)

    def spec(self) -> Any:
        from_file = Reading(self._path)
        try:
            return spec_of(from_file.next())
        finally:
            from_file.close()


def save(source: Stage, path: str) -> None:
    """Write all elements into the file ``path``: whole, or nothing."""
    begun = FileCached(source, path)
    if os.path.exists(path):
        os.unlink(path)
    reading = begun.begin()
    try:
        while True:
            reading.next()
    except StopIteration:
        pass
    finally:
        reading.close()
