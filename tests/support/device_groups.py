"""A group as the conformance suite uses it, whose arrays go through a device of the rank's.

What a call is given is copied to the device (views of one piece of memory stay views of one), the
group moves it there, and what has come is copied back when the call is over, or its work.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

_VERBS = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_single", "reduce_scatter"),
    *("reduce_scatter_single", "all_to_all", "all_to_all_single", "gather", "scatter"),
    *("all_reduce_coalesced", "all_gather_coalesced"),
)
_LARGE = 64 << 20


def root_of(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Copies:
    """The arrays of one call on the device."""

    def __init__(self, platform: Any, index: int) -> None:
        self.platform, self.index = platform, index
        self.roots: dict[int, Any] = {}
        self.pairs: list[tuple[np.ndarray, Any]] = []

    def of(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._of(value)
        if isinstance(value, (list, tuple)):
            return type(value)([self.of(v) for v in value])
        return value

    def _of(self, array: np.ndarray) -> Any:
        if not array.dtype.isnative or array.dtype.kind == "U" or not array.flags.writeable:
            return array  # an argument that is to be refused
        root = root_of(array)
        whole = root.flags.c_contiguous and root.nbytes < _LARGE and array.size
        if not whole or root.dtype != array.dtype:
            made = self.platform.upload(
                np.ascontiguousarray(array).reshape(array.shape), self.index
            )
        else:
            if id(root) not in self.roots:
                self.roots[id(root)] = self.platform.upload(root.reshape(-1), self.index), root
            start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
            made = self._view(self.roots[id(root)][0], start // array.itemsize, array)
        self.pairs.append((array, made))
        return made

    def _view(self, flat: Any, start: int, array: np.ndarray) -> Any:
        """The part of ``flat`` that ``array`` is of its root: contiguous, or every second one."""
        if array.flags.c_contiguous:
            return flat[start : start + array.size].reshape(array.shape)
        if array.ndim == 1 and array.strides[0] % array.itemsize == 0:
            step = array.strides[0] // array.itemsize
            return flat[start : start + array.size * step : step]
        return flat.reshape((*array.shape, 2))[..., 0]

    def back(self, result: Any) -> Any:
        for array, made in self.pairs:
            array[...] = self.platform.download(made)
        return result


class Held:
    """A work whose arrays are copied back once it was waited for."""

    def __init__(self, work: Any, copies: Copies, result: Any) -> None:
        self._work, self._copies, self._given = work, copies, result
        self._back = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def wait(self, timeout: Any = None) -> Any:
        found = self._work.wait(self._work_limit() if timeout is None else timeout)
        if not self._back:
            self._copies.back(None)
            self._back = True
        return self._given if self._given is not None else found

    def _work_limit(self) -> float:
        """The host waits, too, so that what goes wrong is raised here."""
        return self._copies.limit()  # type: ignore[attr-defined]

    def then(self, fn: Any) -> Any:
        return self._work.then(lambda _: fn(self._copies.back(self._given)))


class OnDevice:
    """``group`` for arrays of numpy's, by way of device ``index``."""

    def __init__(self, group: Any, platform: Any, index: int, bind: bool = True) -> None:
        self.__dict__.update(group=group, platform=platform, index=index)
        platform.use(index)
        if bind:
            group.transport.on(platform).bind(index)

    def __getattr__(self, name: str) -> Any:
        if name in _VERBS:
            return functools.partial(self._call, name)
        return getattr(self.group, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.group, name, value)

    def empty(self, shape: Any, dtype: Any = np.float32) -> np.ndarray:
        return np.empty(shape, dtype)

    def _copies(self) -> Copies:
        made = Copies(self.platform, self.index)
        made.limit = lambda: self.group.timeout  # type: ignore[attr-defined]
        return made

    def _call(self, verb: str, *args: Any, async_op: bool = False, **named: Any) -> Any:
        copies = self._copies()
        given = [copies.of(a) for a in args]
        named = {k: copies.of(v) for k, v in named.items()}
        call = getattr(self.group, verb)
        if async_op:
            return Held(call(*given, async_op=True, **named), copies, args[0])
        assert call(*given, **named) is None
        self.group.transport.on(self.platform).drain()
        copies.back(None)
        return None

    def barrier(self, async_op: bool = False) -> Any:
        work = self.group.barrier(async_op=async_op)
        return work if async_op else None

    def isend(self, array: np.ndarray, dst: int, tag: int = 0) -> Held:
        copies = self._copies()
        return Held(self.group.isend(copies.of(array.copy()), dst, tag), copies, None)

    def irecv(self, array: np.ndarray, src: int | None = None, tag: int = 0) -> Held:
        copies = self._copies()
        return Held(self.group.irecv(copies.of(array), src, tag), copies, None)

    def send(self, array: np.ndarray, dst: int, tag: int = 0) -> None:
        self.isend(array, dst, tag).wait()

    def recv(self, array: np.ndarray, src: int | None = None, tag: int = 0) -> int:
        return self.irecv(array, src, tag).wait()

    def batch(self, messages: Any) -> Any:
        with self.group.transport.together():
            works = [start() for start in messages]
        return _All(works)

    def split(self, *args: Any, **named: Any) -> OnDevice | None:
        return self._wrapped(self.group.split(*args, **named))

    def new_group(self, *args: Any, **named: Any) -> OnDevice | None:
        return self._wrapped(self.group.new_group(*args, **named))

    def _wrapped(self, group: Any) -> OnDevice | None:
        return None if group is None else OnDevice(group, self.platform, self.index, bind=False)


class _All:
    def __init__(self, works: list[Held]) -> None:
        self.works = works

    def wait(self) -> None:
        for work in self.works:
            work.wait()
