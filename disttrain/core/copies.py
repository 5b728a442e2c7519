"""``copy.deepcopy`` of tensors: what shares memory goes on sharing it, but for parameters.

As in PyTorch, the copy of a parameter has memory of its own and no gradient; one that stands in
several places is one copy in all of them. Of other tensors:

The memory that a tensor lies in is copied once in a call of ``deepcopy``, and its copies lie in
that as the tensors did. Memory that is not its tensors' own (a mapping, a ring of messages) is not
copied as a whole: of that, tensors with the very same place share one copy.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ..backends.device.array import DeviceArray
from ..backends.memory import owner_of, place_of
from ..errors import AutogradError
from .attributes import give_attributes, own_attributes
from .tensor import Tensor, note_read, rebuild

_KEY = "memory of tensors"


class _Memory:
    """Memory that was copied in one call of deepcopy: its own, the copy, and a tensor over it."""

    def __init__(self, own: Any, copied: Any) -> None:
        self.own, self.copied = own, copied
        self.first: Tensor | None = None

    def view(self, like: np.ndarray) -> np.ndarray:
        raw = self.copied.ravel("K").view(np.uint8)
        at = _address(like) - _address(self.own)
        return np.ndarray(like.shape, like.dtype, raw, at, like.strides)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def deep(self: Tensor, memo: dict) -> Tensor:
    """How a tensor is copied by ``copy.deepcopy``: a leaf over memory of its own."""
    if not self.is_leaf:
        raise AutogradError(
            "deepcopy: only leaves can be copied with their role; this tensor was made by "
            f"{self.grad_fn.name()}; copy t.detach().clone() instead"
        )
    note_read(self)
    if self.copied_alone:
        array, memory = self.array.copy(order="K"), None
    else:
        array, memory = _copied(self.array, memo.setdefault(_KEY, {}))
    out = memo[id(self)] = rebuild(type(self), array, array.shape, self._node is not None)
    if memory is not None and memory.first is None:
        memory.first = out
    elif memory is not None:
        out._st = memory.first.storage_cell()  # type: ignore[union-attr]
        out._gen = out._st.gen
    if self._grad is not None and not self.copied_alone:
        out._grad = copy.deepcopy(self._grad, memo)
    give_attributes(out, copy.deepcopy(own_attributes(self), memo))
    return out


def _copied(array: Any, known: dict) -> tuple[Any, _Memory | None]:
    """The copy of ``array`` and of the memory that it lies in."""
    if not isinstance(array, (np.ndarray, DeviceArray)) or not array.size:
        return array.copy(order="K"), None
    if isinstance(array, DeviceArray):
        return _on_device(array, known)
    own = owner_of(array)
    if own.base is not None and not _bounded(own):
        own = array
    place = (_address(own), own.nbytes, own.shape, own.strides)
    memory = known.get(place)
    if memory is None:
        memory = known[place] = _Memory(own, own.copy(order="K"))
        if own is array:
            return memory.copied, memory
    return memory.view(array), memory


def _bounded(own: np.ndarray) -> bool:
    """Whether an array that does not own its memory is all that tensors have of it: a piece of a
    shared block, or of a file or message that was cut up."""
    cut = type(own.base) is memoryview and isinstance(own.base.obj, np.ndarray)
    return cut or place_of(own) is not None


def _on_device(array: DeviceArray, known: dict) -> tuple[Any, _Memory]:
    own = array.row()
    memory = known.get((own.address, own.nbytes))
    if memory is None:
        memory = known[own.address, own.nbytes] = _Memory(own, own.copy(order="K"))
    at = array.address - own.address
    return memory.copied.reseen(array.shape, array.dtype, at, array.strides), memory


Tensor.__deepcopy__ = deep  # type: ignore[method-assign, assignment]
