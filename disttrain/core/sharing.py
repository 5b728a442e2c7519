"""Tensors in memory that several processes see: moving them there, and pickling them.

An ordinary pickle of a tensor (``pickle.dumps``, ``copy``) holds its numbers. What
``multiprocessing`` sends to another process (arguments of a process that is started afresh, queues,
pipes, pools) holds the place of its memory instead: the memory moves to a shared block, and both
sides see what either writes.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.device.array import DeviceArray
from ..backends.memory import Block, make_memory, place_of
from ..errors import AutogradError
from . import dtypes
from .attributes import give_attributes, own_attributes
from .device import located, usable
from .tensor import Tensor, note_read, rebuild

_ALIGN = 64
_REDUCTION = "multiprocessing.reduction"


def is_shared(t: Tensor) -> bool:
    """Whether the data lies in memory that other processes can see; as in PyTorch, that of an
    accelerator counts as such."""
    array = t.array
    if array.__class__ is not np.ndarray:
        return array.__class__ is DeviceArray
    return place_of(array) is not None


def share(tensors: Sequence[Tensor]) -> None:
    """Move the memory of ``tensors`` into one shared block. Views and all other tensors over the
    same memory move along; what is shared already stays."""
    todo = {id(t): t for t in tensors if not t.is_meta and t.nbytes and not is_shared(t)}
    if todo:
        groups = _with_aliases(list(todo.values()))
        spans = [_span(group) for group in groups]
        starts, total = [], 0
        for low, high in spans:
            starts.append(total + low % _ALIGN)  # as aligned as it was
            total += -(-(high - low + low % _ALIGN) // _ALIGN) * _ALIGN
        block = Block(make_memory("disttrain-shared", total), total)
        for group, (low, high), start in zip(groups, spans, starts, strict=True):
            _move(group, block.piece(start, high - low), low)


def _with_aliases(tensors: list[Tensor]) -> list[list[Tensor]]:
    """``tensors`` and all others over the same memory, in groups that overlap."""
    if all(map(_is_alone, tensors)):
        return [[t] for t in tensors]
    everybody = {id(t): t for t in tensors}  # gc.freeze() may hide them
    for t in gc.get_objects():
        if issubclass(type(t), Tensor) and _has_memory(t):
            everybody[id(t)] = t
    groups: list[list[Tensor]] = []
    end = -1
    for low, high, t in sorted(
        ((*_span([t]), t) for t in everybody.values()), key=lambda of: of[:2]
    ):
        if low >= end:
            groups.append([])
        groups[-1].append(t)
        end = max(end, high)
    wanted = {id(t) for t in tensors}
    return [group for group in groups if not wanted.isdisjoint(map(id, group))]


def _is_alone(t: Tensor) -> bool:
    """Can nothing else refer to the memory of ``t``? Whatever does has its array, or the one that
    is the base of it."""
    array = t.array
    base = array.base
    known = 3  # references: the tensor's or the array's, the variable above, and that of the call
    if base is None:
        return sys.getrefcount(array) <= known
    owns = isinstance(base, np.ndarray) and base.base is None
    return owns and sys.getrefcount(array) <= known and sys.getrefcount(base) <= known


def _has_memory(t: Tensor) -> bool:
    array = t.__dict__.get("array")
    return isinstance(array, np.ndarray) and array.nbytes > 0


def _span(group: list[Tensor]) -> tuple[int, int]:
    """The addresses between which all lie."""
    bounds = [np.lib.array_utils.byte_bounds(t.array) for t in group]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def _move(group: list[Tensor], memory: np.ndarray, low: int) -> None:
    """Copy what ``group`` has from the address ``low`` on to ``memory``, and make all views of
    that."""
    places = [(t, t.array, t.array.__array_interface__["data"][0] - low) for t in group]
    for _, array, at in places:
        _view(memory, array, at)[...] = array
    for t, array, at in places:
        t.array = _view(memory, array, at)


def _view(memory: np.ndarray, like: np.ndarray, offset: int) -> np.ndarray:
    return np.ndarray(like.shape, like.dtype, memory, offset, like.strides)


# --- pickling ------------------------------------------------------------------------------------


class Carried:
    """The memory of a tensor in a pickle."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __reduce__(self) -> tuple:
        array = self.tensor.array
        if array.__class__ is DeviceArray:
            return _at, (array.to_host(), str(self.tensor.device))
        return _itself, (array if self.tensor.is_meta else np.ascontiguousarray(array),)


def _itself(array: Any) -> Any:
    return array


def _at(array: np.ndarray, where: str) -> Any:
    there = located(usable(where))
    return array if there is None else there.take(array)


def reduce(self: Tensor, protocol: int) -> tuple:
    """How a tensor is pickled."""
    note_read(self)
    own = own_attributes(self)
    what = (type(self), Carried(self), self.array.shape, self.requires_grad)
    return (rebuild, what, (None, own)) if own else (rebuild, what)


def shallow(self: Tensor) -> Tensor:
    """``copy.copy``: a leaf over the same memory."""
    out = rebuild(type(self), self.array, self.array.shape, self.requires_grad)
    out._st = self.storage_cell()
    out._gen = out._st.gen
    give_attributes(out, own_attributes(self))
    return out


def make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Tensor:
    """``Tensor._make_subclass``: a leaf of class ``cls`` over the memory of ``data``."""
    out = rebuild(cls, data.array, data.array.shape, require_grad)
    out._st = data.storage_cell()
    out._gen = out._st.gen
    return out


def _by_place(carried: Carried) -> tuple:
    """The memory of a tensor for another process."""
    t = carried.tensor
    if not t.is_leaf:
        raise AutogradError(
            "sending a tensor to another process: this one requires_grad and is no leaf (it was "
            f"made by {t.grad_fn.name()}), and no graph goes to another process; send t.detach()"
        )
    if t.array.__class__ is not np.ndarray or not t.nbytes:
        return carried.__reduce__()
    share([t])
    block, start, size = place_of(t.array)
    offset = t.array.__array_interface__["data"][0] - block.address - start
    kind = dtypes.of(t.array.dtype).name
    return attach, (block, start, size, offset, kind, t.array.shape, t.array.strides)


def attach(
    block: Block, start: int, size: int, offset: int, kind: str, shape: tuple, strides: tuple
) -> np.ndarray:
    """The array at a place in a block."""
    return np.ndarray(shape, dtypes.BY_NAME[kind].np, block.piece(start, size), offset, strides)


def _lend(block: Block) -> tuple:
    """Sending needs sockets, which would make every program start later."""
    return importlib.import_module("..backends.lending", __package__).lend(block)


class _Finder:
    """Finds ``multiprocessing.reduction`` when it is imported, and then tells its pickler how
    tensors go to other processes. (To import it here would make every program start later.)"""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _REDUCTION:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            _teach(module)

        spec.loader.exec_module = exec_module
        return spec


def _teach(reduction: Any) -> None:
    reduction.ForkingPickler.register(Carried, _by_place)
    reduction.ForkingPickler.register(Block, _lend)


Tensor.__reduce_ex__, Tensor.__copy__ = reduce, shallow
Tensor._make_subclass = staticmethod(make_subclass)
if _REDUCTION in sys.modules:
    _teach(sys.modules[_REDUCTION])
else:
    sys.meta_path.insert(0, _Finder())
