"""How an operation runs on hidden memory: arguments taken out of their arrays and checked, clocks,
results wrapped. Knows no function of numpy's by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .memory import Memory, owner_of
from .signatures import SCALARS, Unsupported, dtype_of


class HostUse(TypeError):
    """A device array was about to be read by the host without anybody having asked for it."""


class WrongDevice(RuntimeError):
    """An array of another device than the current one."""


class Work:
    """One operation on the current device and stream of a platform."""

    __slots__ = ("name", "platform", "reads", "writes")

    def __init__(self, platform: Any, name: str) -> None:
        self.platform, self.name = platform, name
        self.reads: list[Memory] = []
        self.writes: list[Memory] = []

    def hidden(self, value: Any) -> Any:
        """``value`` with numpy's arrays where it has device arrays."""
        if value.__class__ is self.platform.array_type:
            return self.opened(value, self.reads)
        if isinstance(value, np.ndarray):
            raise HostUse(
                f"{self.name}: an array of the host's {value.shape} met arrays of a device "
                "(CuPy: Unsupported type <class 'numpy.ndarray'>)"
            )
        if value.__class__ in (list, tuple):
            return value.__class__([self.hidden(v) for v in value])
        if value.__class__ is dict:
            return {k: self.hidden(v) for k, v in value.items()}
        return value

    def target(self, value: Any) -> Any:
        """As ``hidden``, of an array that will be written."""
        if value.__class__ is not self.platform.array_type:
            raise Unsupported(f"{self.name}: out must be an array of the device, not {type(value)}")
        return self.opened(value, self.writes)

    def opened(self, array: Any, into: list[Memory]) -> np.ndarray:
        memory = array._memory
        current = self.platform.current()
        if memory.ledger.index != current:
            raise WrongDevice(
                f"{self.name}: an array of device {memory.ledger.index}, while device {current} is "
                "the current one"
            )
        into.append(memory)
        return array._hidden

    def operand(self, value: Any) -> Any:
        """An argument of a ufunc: an array or a number."""
        if value.__class__ is self.platform.array_type or isinstance(value, np.ndarray):
            return self.hidden(value)
        if not isinstance(value, SCALARS):
            raise Unsupported(f"{self.name}: CuPy takes no {type(value).__name__} as an operand")
        return value

    def run(self, compute: Callable[[], Any], views: bool = False, order: str = "C") -> Any:
        """The results of ``compute()`` as device arrays. ``views``: it may make views of what it
        is given, which use no memory. ``order``: "C", or "K" for results that are as numpy's."""
        with np.errstate(all="ignore"):  # a device says nothing of nan
            return self._run(compute, views, order)

    def _run(self, compute: Callable[[], Any], views: bool, order: str) -> Any:
        platform = self.platform
        if views:
            result = compute()
            if self._only_views(result):
                return self.wrapped(result, None, order)
        recording = platform._here.recording
        if recording is not None:
            return self._recorded(recording, compute, order)
        point = platform.begin(self.name, self.reads, self.writes)
        return self.wrapped(compute(), point, order)

    def _recorded(self, graph: Any, compute: Callable[[], Any], order: str) -> Any:
        """The same, written down for replays."""
        known = [*self.reads, *self.writes]
        graph.wrote(self.writes)
        point = self.platform.tick(graph.stream, self.name)  # nothing is used yet
        out = self.wrapped(compute(), point, order)
        found = out if isinstance(out, (tuple, list)) else (out,)
        fresh = [
            a for a in found if a.__class__ is self.platform.array_type and a._memory not in known
        ]
        graph.did(compute, fresh, known)
        return out

    def _only_views(self, result: Any) -> bool:
        results = result if isinstance(result, (tuple, list)) else (result,)
        owners = {id(m.owner) for m in self.reads}
        return all(id(owner_of(r)) in owners for r in results if isinstance(r, np.ndarray))

    def wrapped(self, result: Any, point: Any, order: str = "C") -> Any:
        """``result`` of numpy's as arrays of the device; numbers are arrays of no axes."""
        if isinstance(result, (tuple, list)):
            whole = [self.wrapped(r, point, order) for r in result]
            plain = result.__class__ in (tuple, list)
            return result.__class__(whole) if plain else tuple(whole)
        if not isinstance(result, (np.ndarray, np.generic)):
            return result
        array = np.asarray(result)
        owner = owner_of(array)
        for memory in (*self.reads, *self.writes):
            if memory.owner is owner:
                if self.name.endswith("diagonal"):  # which numpy alone does not let be written
                    array.flags.writeable = owner.flags.writeable
                return self.platform.array_type(array, memory)
        dtype_of(array.dtype)
        if order == "C" and not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
            owner = array
        memory = self.platform.new_memory(owner, point or self.platform.begin(self.name, (), ()))
        self.reads.append(memory)
        return self.platform.array_type(array, memory)
