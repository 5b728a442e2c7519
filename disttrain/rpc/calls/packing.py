"""Any value as bytes, with its tensors beside it.

Pickle carries everything but the numbers of tensors: a plain Tensor is its place in a list, so that
the numbers go over the wire as they lie in memory, and whoever receives them (``header.Rider``) may
put others in their place before the value is built again. A Tensor that requires grad is a leaf
that does, on the other side. Other tensors (parameters, subclasses) are their class and attributes
around a plain one.

Functions and classes travel by name. Types with a meaning of their own between workers (RRefs) have
a reducer with the agent. Only what peers sent that have proved the job's token is unpickled.
"""

from __future__ import annotations

import functools
import io
import itertools
import pickle
import sys
from collections.abc import Callable, Collection, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from ... import context
from ...backends.device.array import DeviceArray
from ...core.attributes import give_attributes, own_attributes
from ...core.tensor import Tensor, note_read, rebuild, wrap
from ...errors import PackError, UnknownName
from ...ops.functions.creation.sparse_gradients import SparseGradient, with_places
from .overlaps import lay, overlaps, split
from .restricted import CarefulUnpickler, module_of

Reducers = dict[type, Callable[[Any], tuple]]

_ALONE, _ALONE_LEAF = b"", b"g"  # payloads of one plain tensor; no pickle is that short
_HERE = __name__


def _take(
    place: int, requires_grad: bool = False, strides: object = None, places: object = None
) -> Tensor:
    """Stands for a tensor in a pickle; ``_Unpickler`` puts its own function in its place."""
    raise PackError("rpc: a tensor outside of a message; unpack() is for what pack() made")


def _dress(kind: type, data: Tensor, requires_grad: bool, own: dict[str, Any] | None) -> Tensor:
    """A tensor of class ``kind`` over ``data``, at the place in the graph that a rider gave it."""
    placed = not data.is_leaf
    out = rebuild(kind, data.array, data.array.shape, requires_grad and not placed)
    if placed:
        out._node = data._node
    if own:
        give_attributes(out, own)
    return out


def _bring(place: int) -> Any:
    """Stands for an object that a message carries, as ``_take`` does for a tensor."""
    raise PackError("rpc: this object travels with calls only; here is no call that brings it")


class _Pickler(pickle.Pickler):
    tensors: list[Tensor]
    reducers: Reducers
    by_value: bool
    kinds: set[type]
    carried: list | None

    def reducer_override(self, obj: Any) -> Any:
        kind = obj.__class__
        if kind is Tensor:
            if obj.array.__class__ is not np.ndarray:
                return _elsewhere(obj)
            self.tensors.append(obj)
            at = len(self.tensors) - 1
            if not obj.array.flags.c_contiguous:
                return _take, (at, obj.requires_grad, _strides(obj.array))
            return _take, ((at, True) if obj.requires_grad else (at,))
        if kind in self.reducers:
            return self.reducers[kind](obj)
        if kind is FunctionType:
            return _by_value(obj) if self.by_value and not _has_name(obj) else NotImplemented
        if kind in self.kinds:
            return self._carry(obj)
        if isinstance(obj, Tensor) and obj.__class__ is kind:
            if kind is SparseGradient and obj.requires_grad:  # it has a place in the graph
                self.tensors.append(obj)
                places = obj.coalesce()._indices().array  # type: ignore[attr-defined]
                return _take, (len(self.tensors) - 1, True, None, places)
            return _undress(obj)
        return NotImplemented

    def _carry(self, obj: object) -> tuple:
        if self.carried is None:
            raise PackError(f"rpc: {type(obj).__name__} travels with calls only; this is none")
        self.carried.append(obj)
        return _bring, (len(self.carried) - 1,)


def _strides(array: np.ndarray) -> tuple[int, ...] | None:
    """How ``array`` lies in memory, in elements; None where that is not for the other side to
    copy: elements that share memory, or mostly gaps."""
    steps = tuple(s // array.itemsize for s in array.strides)
    pairs = [(s, n) for s, n in zip(steps, array.shape) if n > 1]
    if (
        not array.size
        or any(s <= 0 for s, _ in pairs)
        or any(s % array.itemsize for s in array.strides)
    ):
        return None
    pairs.sort()
    apart = all(a * m <= b for (a, m), (b, _) in itertools.pairwise(pairs))
    return steps if apart and _extent(array.shape, steps) <= 4 * array.size else None


def _extent(shape: tuple[int, ...], steps: tuple[int, ...]) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(shape, steps) if n > 1)


def _laid_out(array: np.ndarray, steps: tuple[int, ...]) -> np.ndarray:
    """A copy of ``array`` that lies in memory by these steps."""
    room = np.zeros(_extent(array.shape, steps), array.dtype)
    size = array.itemsize
    out = np.ndarray(array.shape, array.dtype, room, 0, tuple(s * size for s in steps))
    out[...] = array
    return out


def _elsewhere(t: Tensor) -> Any:
    """How a tensor travels whose numbers are not on the host: as its class says, if it has none."""
    if isinstance(t.array, DeviceArray):
        raise PackError(
            f"rpc: a tensor of shape {list(t.shape)} on {t.device} was given: TensorPipe RPC "
            "backend only supports CPU tensors by default, please move your tensors to CPU before "
            "sending them over RPC: .cpu() here, .to(device) on the other side"
        )
    return NotImplemented


def _undress(t: Tensor) -> Any:
    """A parameter or a tensor of the program's class, around a plain one. Classes that say
    themselves how they are pickled do that."""
    kind = type(t)
    if kind.__reduce_ex__ is not Tensor.__reduce_ex__ or kind.__reduce__ is not Tensor.__reduce__:
        return NotImplemented
    if t.array.__class__ is not np.ndarray:
        return _elsewhere(t)
    own = own_attributes(t)
    data = wrap(t.array)
    data._node = t.graph_node()  # for riders
    return _dress, (kind, data, t.requires_grad, own or None)


def _has_name(fn: FunctionType) -> bool:
    """Can another process find ``fn`` by its name?"""
    found: Any = sys.modules.get(fn.__module__)
    for part in fn.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is fn


def _by_value(fn: FunctionType) -> tuple:
    import cloudpickle

    return cloudpickle.loads, (cloudpickle.dumps(fn),)


class _Unpickler(pickle.Unpickler):
    tensors: list[Tensor]
    laid: Collection[int]  # those that lie in memory as they are to
    carried: Sequence

    def find_class(self, module: str, name: str) -> Any:
        if module == _HERE:
            found = _of_message(self.tensors, self.laid, self.carried, module, name)
            if found is not None:
                return found
        return super().find_class(module_of(module), name)


def _of_message(
    tensors: list[Tensor], laid: Collection[int], carried: Sequence, module: str, name: str
) -> Any:
    """What stands for the tensors and the objects that a message carries."""
    if module == _HERE and name == "_take":
        # No method: the unpickler remembers what it finds, so it would keep itself alive, and
        # the memory of the tensors, until the garbage collector comes.
        return functools.partial(_take_from, tensors, laid)
    if module == _HERE and name == "_bring":
        return carried.__getitem__
    return None


def _take_from(
    tensors: list[Tensor],
    laid: Collection[int],
    place: int,
    requires_grad: bool = False,
    strides: tuple | None = None,
    places: Any = None,
) -> Tensor:
    t = tensors[place]
    if strides is not None and place not in laid:
        t.array = _laid_out(t.array, strides)
    elif places is not None:
        t = with_places(t, places)
    if requires_grad and t._node is None:
        t.requires_grad_()
    return t


class Packer:
    """Packs and unpacks for one worker.

    ``reducers``: how objects of a type travel, as ``__reduce__`` would say it. ``kinds``: types of
    which a message carries its objects (``header.Carrier``). ``allowed``: the
    modules and packages whose functions and classes others may name here (None: all).
    ``by_value``: functions without a name that others could find travel as their code
    (cloudpickle).
    """

    def __init__(self, allowed: Collection[str] | None = None, by_value: bool = False) -> None:
        self.reducers: Reducers = {}
        self.kinds: set[type] = set()
        self.allowed, self.by_value = allowed, by_value

    def pack(self, obj: object, carried: list | None = None) -> tuple[bytes, list[Tensor]]:
        """``obj`` as bytes and tensors; ``carried`` gets the objects in it that the message is to
        carry. ``PackError`` where it cannot be pickled."""
        if obj.__class__ is Tensor:
            array = obj.array
            if array.__class__ is np.ndarray and array.flags.c_contiguous:
                return (_ALONE_LEAF if obj.requires_grad else _ALONE), [obj]
        file = io.BytesIO()
        pickler = _Pickler(file, 5)
        tensors: list[Tensor] = []
        pickler.tensors, pickler.carried, pickler.kinds = tensors, carried, self.kinds
        pickler.reducers, pickler.by_value = self.reducers, self.by_value
        try:
            pickler.dump(obj)
        except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
            raise _cannot_pack(error, obj) from error
        if len(tensors) > 1:
            ahead = overlaps(tensors)
            if ahead:
                return ahead + file.getvalue(), tensors
        return file.getvalue(), tensors

    def unpack(self, payload: Any, tensors: list[Tensor], carried: Sequence = ()) -> Any:
        """What ``pack`` was given, with ``tensors`` and ``carried`` in it. ``UnknownName`` where it
        names a function or class that is not here."""
        if len(payload) <= len(_ALONE_LEAF) and len(tensors) == 1:
            return _take_from(tensors, (), 0, payload == _ALONE_LEAF)
        laid: Collection[int] = ()
        if len(tensors) > 1:
            places, payload = split(payload)
            laid = lay(tensors, places) if places else ()
        try:
            if self.allowed is not None:
                find = functools.partial(_of_message, tensors, laid, carried)
                return CarefulUnpickler(io.BytesIO(payload), self.allowed, find).load()
            unpickler = _Unpickler(io.BytesIO(payload))
            unpickler.tensors, unpickler.laid, unpickler.carried = tensors, laid, carried
            return unpickler.load()
        except (AttributeError, ModuleNotFoundError) as error:
            if isinstance(error, UnknownName):
                raise
            raise UnknownName(
                f"{error}. Default RPC pickler does not serialize function code. Ensure that UDFs "
                "are defined on both caller and callee modules."
            ) from error


def arrays_of(tensors: list[Tensor]) -> list[np.ndarray]:
    """The numbers of ``tensors``, each in one piece."""
    if context.thread.stack:
        for t in tensors:
            note_read(t)
    return [
        t.array if t.array.flags.c_contiguous else np.ascontiguousarray(t.array) for t in tensors
    ]


def _cannot_pack(error: BaseException, obj: object) -> PackError:
    if isinstance(error, RecursionError):
        return PackError(
            "rpc: cannot pickle a value that is nested deeper than pickle can follow "
            f"(sys.getrecursionlimit() is {sys.getrecursionlimit()}); send it flat, in lists"
        )
    hint = ""
    if "lambda" in str(error) or "<locals>" in str(error) or "local object" in str(error):
        hint = (
            ". Functions travel by name: define it at the top of a module that every worker can "
            "import, or give init_rpc the option cloudpickle=True, which sends its code"
        )
    return PackError(f"rpc: {type(error).__name__}: {error}{hint}")
