"""Tensor: storage, view, element type, device, graph position, hooks, version. No arithmetic.

``array`` is the tensor's view of memory (numpy, or a ``NullArray`` on the meta device). Tensors
that share memory share a ``Storage``, made when the first view or the first in-place operation
needs it; a tensor without one has never been aliased or written to (version 0).

``_node`` is the tensor's place in the graph: ``AccumulateGrad`` for a leaf that requires grad, the
``Node`` (or one ``Output`` of it) that made it otherwise, None when nothing is recorded.
Operators and methods are attached in ``ops/methods.py``; ``tensor_methods.pyi`` lists them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from .. import context
from ..backends.array_kinds import ArrayKind
from ..backends.null import NullArray
from ..core.tensor_methods import TensorMethods
from ..errors import AutogradError, DeviceError, DTypeError, HostError, ShapeError
from .classes import class_for, plain_class
from .hooks import HookHandle
from .node import AccumulateGrad, Node, Output, know_names
from .types import dtypes
from .types import layout as layouts
from .types.device import CPU, HOST, at, device, located
from .types.size import Size

_new = object.__new__
ndarray = np.ndarray


class Storage:
    """What tensors over the same memory share: a count of writes and a count of graph rewrites.

    ``version`` rises with every in-place write. ``gen`` rises when a write changed the graph of the
    base, so that views know that their node is stale. ``site`` is where the last write happened.
    ``inside``: the function, run by a transform, that the memory was made in. ``joined``: its base
    has become a value of that transform.
    """

    version = 0
    gen = 0
    site: str | None = None
    inside: Any = None
    joined = False


class Tensor(TensorMethods):
    """An n-dimensional array with a place in the autograd graph."""

    array: Any
    _node: Any = None
    _st: Storage | None = None
    _view: Any = None  # (source tensor, primitive or None, its output's number or None, params)
    _gen = 0
    _former: Any = None  # (generation, itself as it was before an in-place change of shape)
    _stands_for: Any = None  # in such a former self: a weak reference to the tensor
    _grad: Tensor | None = None
    _retains = False
    _idle: Any = None  # the accumulator of a leaf that does not require grad for now
    _seen = 0  # in a node's alias of its result: the version when the result was first shared
    copied_alone = False  # by deepcopy: into memory of its own, without its gradient
    node_class: Any = Node  # of the nodes that make such tensors
    is_sparse = False
    is_sparse_csr = False
    _composes: Any = None  # (primitive, args, params): does operations where no array serves
    is_quantized = False
    is_mkldnn = False
    is_nested = False
    layout: layouts.layout = layouts.strided
    __array_priority__ = 1000

    # --- what it is -------------------------------------------------------------------------
    @property
    def shape(self) -> Size:
        return Size(self.array.shape)

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> dtypes.dtype:
        return dtypes.of(self.array.dtype)

    @property
    def grad_dtype(self) -> dtypes.dtype:
        return self.dtype

    @property
    def device(self) -> device:
        array = self.array
        if array.__class__ is ndarray:
            return CPU
        return at(*array.place) if isinstance(array, ArrayKind) else CPU

    @property
    def is_meta(self) -> bool:
        return self.array.__class__ is NullArray

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def itemsize(self) -> int:
        return self.array.itemsize

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def meta(self) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and numpy type, without looking at data."""
        return self.array.shape, self.array.dtype

    # --- graph ------------------------------------------------------------------------------
    def graph_node(self) -> Any:
        """``_node``, brought up to date when an in-place write changed the base's graph."""
        st = self._st
        if st is not None and st.gen != self._gen:
            self._refresh_node()
        return self._node

    def _refresh_node(self, anew: bool = False) -> None:
        before = self._node
        if self._view is not None and self._view[1] is not None:
            source, prim, part, params = self._view
            while source._former is not None and self._gen < source._former[0]:
                source = source._former[1]
                self._view = (source, prim, part, params)
            if part is not None:
                prim, params = prim.part(params, part)
            source.graph_node()
            leaf = before.__class__ is AccumulateGrad and _is_leaf(source)
            if not leaf and (anew or not _follows(before, source)):
                with context_recording():
                    self._node = prim(source, **params)._node
                if self._retains:
                    self.retain_again(before)
        self._gen = self._st.gen  # type: ignore[union-attr]

    @property
    def requires_grad(self) -> bool:
        return self.graph_node() is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        node = self.graph_node()
        if not requires_grad:
            if node is not None and not isinstance(node, AccumulateGrad):
                raise AutogradError(
                    "requires_grad = False: only a leaf can change it, and this tensor was made "
                    f"by {node.name()}; use .detach() to cut it off"
                )
            if node is not None:
                self._idle = node  # with its hooks, for when gradients are wanted again
            self._node = None
        elif node is None and self._idle is not None:
            self._node, self._idle = self._idle, None
            self._node.shape, self._node.dtype = self.meta()
        elif node is None:
            kind = self.dtype
            if not (kind.is_floating_point or kind.is_complex):
                raise DTypeError(
                    "Only Tensors of floating point and complex dtype can require gradients: "
                    f"this one is {kind!r} of shape {list(self.shape)}; convert it with "
                    ".float() first"
                )
            self._node = AccumulateGrad(self)
            if self._st is not None:  # views of it require grad from now on
                self._st.gen += 1
                self._gen = self._st.gen
        return self

    @property
    def grad_fn(self) -> Any:
        node = self.graph_node()
        if node.__class__ is AccumulateGrad:
            return None
        return None if node is None else node.shown()

    @property
    def output_nr(self) -> int:
        return self._node.index if self._node.__class__ is Output else 0

    @property
    def is_leaf(self) -> bool:
        node = self.graph_node()
        return node is None or node.__class__ is AccumulateGrad

    @property
    def grad(self) -> Tensor | None:
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f".grad: a Tensor or None is needed, {type(value).__name__} given")
            if tuple(value.shape) != tuple(self.shape):
                raise ShapeError(
                    f".grad: shape {list(value.shape)} given for a tensor of shape "
                    f"{list(self.shape)}; they must be equal"
                )
            if value.meta()[1] != self.meta()[1]:
                raise DTypeError(
                    f".grad: a gradient of {value.dtype!r} given for a tensor of {self.dtype!r}; "
                    "the types must be equal: convert it with .to(tensor.dtype)"
                )
            if value.device != self.device:
                raise DeviceError(
                    f".grad: a gradient on {value.device} given for a tensor on {self.device}; "
                    "move it with .to(tensor.device)"
                )
        self._grad = value if value is None else value.as_gradient()

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def as_gradient(self) -> Tensor:
        """Itself, as backward may add to it when it is the gradient of a dense tensor."""
        return self

    @property
    def retains_grad(self) -> bool:
        return self._retains

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Call ``hook(grad)`` when this tensor's gradient is complete; it may return another."""
        node = self.graph_node()
        if node is None:
            raise AutogradError(
                "register_hook: this tensor does not require grad, so no gradient will reach it; "
                "call requires_grad_() first"
            )
        return node.add_tensor_hook(hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> HookHandle:
        """Call ``hook(self)`` after a backward pass has written ``.grad`` of this leaf."""
        if not self.is_leaf or self._node is None:
            raise AutogradError(
                "post accumulate grad hooks cannot be registered on non-leaf tensors, nor on "
                "leaves that do not require grad; use register_hook for other tensors"
            )
        return self._node.add_post_hook(hook)

    def retain_grad(self) -> None:
        """Keep ``.grad`` of this tensor in backward although it is no leaf: the gradient of its
        last value, after all hooks."""
        if not self.requires_grad:
            raise AutogradError(
                "retain_grad: this tensor does not require grad, so no gradient will reach it "
                "(can't retain_grad on Tensor that has requires_grad=False)"
            )
        if not self.is_leaf and not self._retains:
            self._retains = True
            self.retain_again(None)

    def retain_again(self, before: Node | None) -> None:
        """``retain_grad`` for the place that the tensor has now; it was at ``before``."""
        if before is not None:
            before.forget(self)
        if self._node is not None:
            self._node.retain(self)

    # --- memory -----------------------------------------------------------------------------
    def storage_cell(self) -> Storage:
        """The storage shared by this tensor's aliases, made when first asked for."""
        st = self._st
        if st is None:
            st = self._st = Storage()
        return st

    def watch_results(self, st: Storage) -> None:
        """Let the nodes that keep this tensor, or what it is a view of, as their result notice
        writes, which ``st`` counts."""
        t = self
        while True:
            if t._node is not None:
                t._node.watch(st)
            if t._view is None:
                return
            t = t._view[0]

    def detach(self) -> Tensor:
        """A tensor over the same memory that is no part of the graph. Writes to either count for
        both, so that a gradient that needs the old value is refused."""
        out = wrap(self.array)
        st = out._st = self.storage_cell()
        out._gen = st.gen
        if self._node is not None or self._view is not None:
            self.watch_results(st)
        return out

    @property
    def data(self) -> Tensor:
        """The same memory, with versions of its own: writes to it go unnoticed by autograd."""
        return self._data()

    @data.setter
    def data(self, value: Tensor) -> None:
        note_read(value)
        version = self._version
        self.set_array(value.array)
        self.storage_cell().version = version  # what saved it reads the new value

    def _data(self) -> Tensor:
        out, inside = self.alias(), context.thread.inside
        if inside is not None:
            out.storage_cell().inside = inside.owner(self._st)
        return out

    def set_array(self, array: Any) -> None:
        """Make this tensor a view of other memory, keeping its identity and its place."""
        if array.__class__ is not self.array.__class__:
            self.__class__ = class_for(array, plain_class(self.__class__))
        self.array = array
        self.storage_cell().version += 1
        if self._node.__class__ is AccumulateGrad:
            self._node.shape, self._node.dtype = self.meta()

    def alias(self) -> Tensor:
        """Another Tensor object over the same memory with no graph position of its own."""
        return _over(self.array)

    @property
    def _version(self) -> int:
        return 0 if self._st is None else self._st.version

    @property
    def _base(self) -> Tensor | None:
        self.forget_hidden_base()
        base = None if self._view is None else self._view[0]
        while base is not None and base._view is not None:
            base = base._view[0]
        shown = base if base is None or base._stands_for is None else base._stands_for()
        return None if shown is self else shown

    def forget_hidden_base(self) -> None:
        """A base that only this view holds, a step inside some function, is nobody's base: what is
        written need not reach it. A leaf is one in any case, whose value its graph is of."""
        if self._view is None:
            return
        source, *how = self._view
        source.forget_hidden_base()
        if source._view is not None or self._stands_for is not None:
            return
        if source._node.__class__ is not AccumulateGrad:
            if source._node is not None:  # which may keep its result, in this memory
                source._node.watch(self.storage_cell())
            self._view, held = None, weakref.ref(source)
            del source
            found = held()  # if others have it
            self._view = None if found is None else (found, *how)

    def leave_behind(self) -> Tensor:
        """This tensor as it is now, for views of it that exist to go on from. Called before it
        takes another shape or leaves the graph in place."""
        before, st = self.alias(), self.storage_cell()
        before._node, before._view, before._former = self._node, self._view, self._former
        before._st, before._stands_for = st, self._stands_for or weakref.ref(self)
        st.gen += 1
        self._gen = before._gen = st.gen
        self._former = (st.gen, before)
        return before

    def data_ptr(self) -> int:
        array = self.array
        if array.__class__ is ndarray:
            return array.__array_interface__["data"][0]
        return array.address

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The tensor's memory as a numpy array, shared. ``force`` detaches first, and copies what
        is on a device to the host."""
        if self.requires_grad and not force and context.thread.grad_enabled:
            raise AutogradError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                "instead. (numpy would not record what it does.)"
            )
        note_read(self)
        array = self.array
        if array.__class__ is not ndarray and array.place[0] not in HOST:
            if not force:
                raise HostError(
                    f"numpy: can't convert {self.device} device type tensor to numpy. Use "
                    f"Tensor.cpu() to copy the tensor (shape {list(self.shape)}) to host memory "
                    "first."
                )
            return array.whole()
        return np.asarray(array)

    def __hash__(self) -> int:
        return id(self)


know_names(Tensor, "array _st _gen _node _grad _view _idle")


def _is_leaf(source: Tensor) -> bool:
    """Whether what ``source`` is a view of was never written to by a recorded operation, so that
    views of it that are leaves stay leaves."""
    while source._view is not None:
        source = source._view[0]
    node = source._node
    return node is None or node.__class__ is AccumulateGrad


def rebuild(kind: type, array: ArrayKind | np.ndarray, shape: tuple, requires_grad: bool) -> Tensor:
    """A tensor of class ``kind`` over ``array``: a leaf."""
    out: Tensor = _new(kind)
    out.array = array.reshape(shape) if isinstance(array, np.ndarray) else array
    if requires_grad:
        out.requires_grad_()
    return out


def note_read(t: Tensor) -> None:
    """Tell interpreters that care (capture) that numbers of ``t`` leave for Python."""
    for interp in context.thread.stack:
        if interp.dynamic:
            interp.on_read(t)


def _follows(node: Any, source: Tensor) -> bool:
    """Whether a view with this node has its place by the one that ``source`` still has."""
    edges: tuple = getattr(getattr(node, "node", node), "edges", ())
    return bool(edges) and edges[0] is not None and edges[0] is source._node


def layout(t: Tensor) -> Any:
    """The array of ``t`` for those who ask where and how it lies, and never what is in it."""
    return t.array


def wrap(array: Any) -> Tensor:
    """A Tensor over ``array`` (numpy or NullArray), without a copy and without a check."""
    out: Tensor = _new(Tensor if array.__class__ is ndarray else class_for(array, Tensor))
    out.array = array
    inside = context.thread.inside
    if inside is not None:
        out.storage_cell().inside = inside
    return out


def _over(array: Any) -> Tensor:
    """As ``wrap``, over memory that another Tensor has."""
    out: Tensor = _new(Tensor if array.__class__ is ndarray else class_for(array, Tensor))
    out.array = array
    return out


def beside(t: object, array: object) -> Tensor:
    """A Tensor over ``array``, made from numbers that every rank knows, to be used with ``t``."""
    given = t.__dict__.get("array") if isinstance(t, Tensor) else None
    host = given.__class__ is ndarray or getattr(given, "as_host", False)
    if host or not isinstance(t, Tensor):
        return wrap(array)
    if given is None:  # inside a transform
        there = located(t.device)
        return wrap(array if there is None else there.take(np.asarray(array)))
    return wrap(given.beside(np.asarray(array)))


class context_recording:  # noqa: N801  (used like a function)
    """Record operations while the block runs, whatever the grad mode outside."""

    def __enter__(self) -> None:
        thread = context.thread
        self.before = thread.grad_enabled
        thread.grad_enabled = True
        thread.refresh()

    def __exit__(self, *exc: object) -> None:
        context.thread.grad_enabled = self.before
        context.thread.refresh()
