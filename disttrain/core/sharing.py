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
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from ..backends.device.array import DeviceArray
from ..backends.memory import Block, make_memory, place_of
from ..errors import AutogradError
from .attributes import give_attributes, own_attributes
from .tensor import Tensor, note_read, rebuild
from .types import dtypes
from .types.device import located, usable

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
    groups = _overlapping([_place(t) for t in todo.values()])
    owners = [[ref for p in group for ref in _owners(p.tensor.array)] for group in groups]
    _move(groups)
    # Memory that is still there, now that these have left it, is held by somebody else.
    left = [any(ref() is not None for ref in refs) for refs in owners]
    if any(left):
        alone = [group for group, is_left in zip(groups, left, strict=True) if not is_left]
        shown = [group for group, is_left in zip(groups, left, strict=True) if is_left]
        _move(alone + _with_aliases(shown))


class _Place(NamedTuple):
    """Where a tensor lay: its first element, and the addresses between which all are."""

    tensor: Tensor
    first: int
    low: int
    high: int


def _place(t: Tensor) -> _Place:
    low, high = np.lib.array_utils.byte_bounds(t.array)
    return _Place(t, t.array.__array_interface__["data"][0], low, high)


def _owners(array: np.ndarray) -> list[Callable[[], Any]]:
    """Ways to ask for what has the memory of ``array`` once that has gone: whoever else looks at it
    holds one of these."""
    base = array.base
    if base is None:
        return [weakref.ref(array)]
    if isinstance(base, np.ndarray) and base.base is None:
        return [weakref.ref(array), weakref.ref(base)]
    return [lambda: base]


def _with_aliases(groups: list[list[_Place]]) -> list[list[_Place]]:
    """``groups``, whose memory is still there, with all other tensors over it."""
    wanted = {id(p.tensor) for group in groups for p in group}
    everybody = [p for group in groups for p in group]
    for t in gc.get_objects():
        if issubclass(type(t), Tensor) and id(t) not in wanted and _has_memory(t):
            everybody.append(_place(t))
    found = _overlapping(everybody)
    return [group for group in found if any(id(p.tensor) in wanted for p in group)]


def _overlapping(places: list[_Place]) -> list[list[_Place]]:
    """``places`` in groups that overlap."""
    groups: list[list[_Place]] = []
    end = -1
    for p in sorted(places, key=lambda p: (p.low, p.high)):
        if p.low >= end:
            groups.append([])
        groups[-1].append(p)
        end = max(end, p.high)
    return groups


def _has_memory(t: Tensor) -> bool:
    array = t.__dict__.get("array")
    return isinstance(array, np.ndarray) and array.nbytes > 0


def _move(groups: list[list[_Place]]) -> None:
    """Copy what the tensors have to one shared block, where those of a group lie as they did."""
    starts, total = [], 0
    spans = [(min(p.low for p in group), max(p.high for p in group)) for group in groups]
    for low, high in spans:
        starts.append(total + low % _ALIGN)  # as aligned as it was
        total += -(-(high - low + low % _ALIGN) // _ALIGN) * _ALIGN
    if not total:
        return
    block = Block(make_memory("disttrain-shared", total), total)
    for group, (low, high), start in zip(groups, spans, starts, strict=True):
        memory = block.piece(start, high - low)
        views = [_view(memory, p.tensor.array, p.first - low) for p in group]
        for p, view in zip(group, views, strict=True):
            view[...] = p.tensor.array
        for p, view in zip(group, views, strict=True):
            p.tensor.array = view


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


def _itself(array: object) -> Any:
    return dtypes.known(array) if array.__class__ is np.ndarray else array


def _at(array: np.ndarray, where: str) -> Any:
    there = located(usable(where))
    return array if there is None else there.take(array)


def reduce(self: Tensor, protocol: SupportsIndex) -> tuple:
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
    place = place_of(t.array)
    assert place is not None  # it has just been shared
    block, start, size = place
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
    return importlib.import_module("..backends.descriptor_passing", __package__).lend(block)


class _Finder:
    """Finds ``multiprocessing.reduction`` when it is imported, and then tells its pickler how
    tensors go to other processes. (To import it here would make every program start later.)"""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != _REDUCTION:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module: object) -> None:
            load(module)
            _teach(module)

        spec.loader.exec_module = exec_module
        return spec


def _teach(reduction: Any) -> None:
    reduction.ForkingPickler.register(Carried, _by_place)
    reduction.ForkingPickler.register(Block, _lend)


Tensor.__reduce_ex__ = reduce  # type: ignore[method-assign, assignment]
Tensor.__copy__ = shallow  # type: ignore[method-assign, assignment]
Tensor._make_subclass = staticmethod(make_subclass)  # type: ignore[method-assign, assignment]
if _REDUCTION in sys.modules:
    _teach(sys.modules[_REDUCTION])
else:
    sys.meta_path.insert(0, _Finder())
