"""The graph: nodes, their outputs and the leaves' accumulators. No walk (see ``engine``).

A ``Node`` remembers which primitive ran, the tensors that its rules need (never arrays), and its
``edges``: per input the ``Node``, ``Output`` or ``AccumulateGrad`` that the gradient goes to, or
None. ``seq`` numbers nodes in order of creation, which the engine's order is derived from.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import AutogradError
from .hooks import HookDict, HookHandle

next_seq = itertools.count(1).__next__
NOTHING = (None,)  # what a node of one input saves where its rules read nothing


class GraphNode:
    """What the engine sees of every node."""

    edges: tuple = ()
    num_outputs = 1
    tensor_hooks: dict[int, HookDict] | None = None  # by output number
    retained: dict[int, weakref.ref] | None = None  # tensors that keep their gradient, likewise
    makes = False  # whether ``run`` gives what came, views, or arrays made for that one place
    wants_none = False  # whether a missing gradient reaches ``run`` as None, not as zeros
    pre_hooks: HookDict | None = None
    post_hooks: HookDict | None = None
    site: str | None = None
    seq = 0
    outward = False  # whether it may reach other ranks
    on_device = False  # whether it runs on an accelerator, as its forward did: in ``stream``,
    stream: Any = None  # or if that is None in the default one
    shape: Any = ()
    dtype: Any = None
    shapes: Any = None  # (shape, dtype) per output where there are several

    def name(self) -> str:
        return type(self).__name__

    @property
    def next_functions(self) -> tuple:
        return tuple(
            (None, 0) if e is None else (e.shown(), e.index if e.__class__ is Output else 0)
            for e in self.edges
        )

    def shown(self) -> GraphNode:
        """This node, for a program to look at."""
        return self

    @property
    def metadata(self) -> dict:
        """A dict for the user's own notes about this node."""
        return self.__dict__.setdefault("_metadata", {})

    def __call__(self, *grads: Any) -> Any:
        """Run the node alone: gradients of its outputs in, gradients of its inputs out."""
        if len(grads) != self.num_outputs:
            raise TypeError(
                f"{self.name()}: expected {self.num_outputs} arguments, got {len(grads)} instead: "
                "one gradient for each output"
            )
        found = self.run(grads if self.shapes is not None else grads[0], True)
        return found[0] if len(found) == 1 else found

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        raise NotImplementedError

    def run_without(self, tensors: bool) -> tuple:
        """As ``run``, where no gradient has come."""
        return (None,) * len(self.edges)

    def _sequence_nr(self) -> int:
        return self.seq

    def watch(self, storage: object, index: int = 0) -> None:
        """Result ``index`` is about to be shared: writes to it will count in ``storage``."""

    def add_tensor_hook(self, hook: Callable, index: int = 0) -> HookHandle:
        if self.tensor_hooks is None:
            self.tensor_hooks = {}
        return HookHandle(self.tensor_hooks.setdefault(index, HookDict()), hook)

    def made_at(self) -> str:
        if self.site:
            return f". The operation ran at {self.site}"
        return ". (autograd.set_detect_anomaly(True) names the forward line.)"

    def retain(self, tensor: object, index: int = 0) -> None:
        """Keep the gradient of output ``index`` in ``tensor.grad``, after all hooks."""
        if self.tensor_hooks is None:
            self.tensor_hooks = {}
        if self.retained is None:
            self.retained = {}
        self.retained[index] = weakref.ref(tensor)

    def forget(self, tensor: object, index: int = 0) -> None:
        """Undo ``retain``."""
        kept = None if self.retained is None else self.retained.get(index)
        if kept is not None and kept() is tensor:
            del self.retained[index]  # type: ignore[union-attr]

    def register_prehook(self, hook: Callable) -> HookHandle:
        """``hook(grad_outputs)`` before this node runs; it may return other gradients."""
        if self.pre_hooks is None:
            self.pre_hooks = HookDict()
        return HookHandle(self.pre_hooks, hook)

    def register_hook(self, hook: Callable) -> HookHandle:
        """``hook(grad_inputs, grad_outputs)`` after this node ran; may return other grad inputs."""
        if self.post_hooks is None:
            self.post_hooks = HookDict()
        return HookHandle(self.post_hooks, hook)


class AccumulateGrad(GraphNode):
    """The end of the graph at a leaf. ``store``, where set, writes the gradient in its own way;
    ``place`` says where a rule may compute it at once: None, or (an array, a factor, whether
    the factor is a power of two). ``elsewhere``: that store leaves the gradient in ``.grad`` of
    other tensors, and tells the walk (``gave``)."""

    seq = 1 << 62
    elsewhere = False
    place: Callable[[], Any] | None = None
    store: Callable[[Any, Any], None] | None = None
    accumulate_hooks: HookDict | None = None
    private = False  # a function transform's own leaf, which nobody else can ask for

    def __init__(self, variable: Any) -> None:
        self._variable = weakref.ref(variable)
        self.lock = threading.Lock()  # several threads may bring gradients at once
        self.shape, self.dtype = variable.meta()

    @property
    def leaf(self) -> Any:
        """The tensor that gets the gradient."""
        return self._variable()

    @property
    def variable(self) -> Any:
        """The leaf, or the sparse tensor whose values it is."""
        leaf = self._variable()
        whole = None if leaf is None else leaf.__dict__.get("_held_by")
        return leaf if whole is None else whole()

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"  # as PyTorch prints it

    def add_post_hook(self, hook: Callable) -> HookHandle:
        if self.accumulate_hooks is None:
            self.accumulate_hooks = HookDict()
        return HookHandle(self.accumulate_hooks, hook)

    def __repr__(self) -> str:
        return f"<AccumulateGrad of shape {list(self.shape)}>"


def know_names(kind: type, names: str) -> None:
    """Let CPython see the names of attributes on one object of ``kind`` before many are made: then
    they lie side by side in all of them. An object that is given a name that came late gets a dict
    of its own, which is slower."""
    first: Any = object.__new__(kind)
    for name in names.split():
        object.__setattr__(first, name, None)


know_names(AccumulateGrad, "_variable lock shape dtype store accumulate_hooks tensor_hooks")


class GradientEdge(NamedTuple):
    """A place in the graph: output ``output_nr`` of ``node``. Stands for the tensor there in
    ``grad`` and ``backward``."""

    node: Any
    output_nr: int = 0
    ownership_token: Any = None

    @property
    def is_meta(self) -> bool:
        return False

    def graph_node(self) -> Any:
        return self.node if self.node.shapes is None else Output(self.node, self.output_nr)

    def meta(self) -> tuple:
        node = self.node
        return (node.shape, node.dtype) if node.shapes is None else node.shapes[self.output_nr]

    def retain_grad(self) -> None:
        """There is no tensor to keep a gradient."""


class Output:
    """One output of a node that has several."""

    __slots__ = ("index", "node")

    def __init__(self, node: Any, index: int) -> None:
        self.node, self.index = node, index

    def name(self) -> str:
        return self.node.name()

    def shown(self) -> GraphNode:
        return self.node.shown()

    def watch(self, storage: object) -> None:
        self.node.watch(storage, self.index)

    def retain(self, tensor: object) -> None:
        self.node.retain(tensor, self.index)

    def forget(self, tensor: object) -> None:
        self.node.forget(tensor, self.index)

    def add_tensor_hook(self, hook: Callable) -> HookHandle:
        return self.node.add_tensor_hook(hook, self.index)


class Node(GraphNode):
    """One recorded run of a primitive.

    To programs it shows itself as of a class of its primitive's own, ``MulBackward0``; nodes that
    nobody looks at need none.
    """

    makes = True
    versions: tuple | None = None
    out: Any = None

    def __init__(
        self, prim: Any, edges: tuple, saved: tuple, params: dict, shape: tuple | None, dtype: Any
    ) -> None:
        self.prim = prim
        self.edges = edges
        self.saved: tuple | None = saved
        self.params = params
        self.shape = shape
        self.dtype = dtype
        self.seq = next_seq()

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return 1 if self.shapes is None else len(self.shapes)

    def name(self) -> str:
        words = self.prim.name.strip("_").split("_")
        return "".join(w[:1].upper() + w[1:] for w in words) + "Backward0"

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"

    def shown(self) -> GraphNode:
        if self.__class__ is Node:
            prim = self.prim
            if prim.node_kind is None:
                prim.node_kind = type(self.name(), (Node,), {})
            self.__class__ = prim.node_kind
        return self

    def watch(self, storage: Any, index: int = 0) -> None:
        out = self.out[index] if self.out.__class__ is tuple else self.out
        if out is not None and out._st is None:
            out._st, out._seen = storage, storage.version

    def release(self) -> None:
        """Drop what the rules needed; a later run is an error."""
        for t in self.saved or ():
            if t is not None:
                self.saved = None
                break
        if self.out is not None:
            self.saved = self.out = None

    def run_without(self, tensors: bool) -> tuple:
        self.check()
        return (None,) * len(self.edges)

    def check(self) -> None:
        """Raise unless the saved tensors are there and unchanged."""
        if self.saved is None:
            raise AutogradError(
                f"backward: {self.name()} was already run and its saved tensors were freed. "
                "Specify retain_graph=True the first time to go backward through it a second time"
                + self.made_at()
            )
        for o in self.out if self.out.__class__ is tuple else (self.out,):
            if o is not None and o._st is not None and o._st.version != o._seen:
                raise AutogradError(self._changed("its result", o.meta()[0], o._st.site))
        versions = self.versions
        for i, t in enumerate(self.saved):
            st = getattr(t, "_st", None)
            if st is not None:
                expected = 0 if versions is None else versions[i]
                if st.version != expected:
                    what = f"input {i} (version {st.version}, saved at version {expected})"
                    raise AutogradError(self._changed(what, t.meta()[0], st.site))

    def _changed(self, what: str, shape: tuple, site: str | None) -> str:
        return (
            f"backward: {what} of {self.name()}, a tensor of shape {list(shape)}, is needed for "
            "the gradient but was changed in-place (modified by an inplace operation"
            f"{f' at {site}' if site else ''}); use the out-of-place form there, or .clone() the "
            f"tensor first{self.made_at()}"
        )

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        """The gradients for ``edges``, given the gradient ``g`` (a tuple when there are several
        outputs) as raw arrays, or as Tensors when ``tensors``. ``wanted``: for which edges."""
        if tensors:
            self.check()
            values: Any = self.saved
            out = self._out_tensor() if self.out is not None else None
        else:
            values = self.saved
            if values is not NOTHING:
                values = self._arrays()
            out = self.out
            if out is not None:
                if out.__class__ is tuple:
                    self.check()
                    out = tuple([None if o is None else o.array for o in out])
                else:
                    if out._st is not None and out._st.version != out._seen:
                        self.check()
                    out = out.array
        prim = self.prim
        if prim.vjp_all is not None:
            needs = wanted or tuple([e is not None for e in self.edges])
            if True not in needs:
                return (None,) * len(needs)
            return prim.vjp_all(g, out, values, self, needs)
        rules = prim.rules
        edges = self.edges
        if wanted is None:
            if len(edges) == 1:
                return (rules[0](g, out, values, self),)
            if len(edges) == 2:
                a, b = edges
                return (
                    None if a is None else rules[0](g, out, values, self),
                    None if b is None else rules[1](g, out, values, self),
                )
            return tuple(
                [None if e is None else rule(g, out, values, self) for e, rule in zip(edges, rules)]
            )
        return tuple(
            [
                rule(g, out, values, self) if want else None
                for want, rule in zip(wanted, rules, strict=True)
            ]
        )

    def _arrays(self) -> list:
        """The arrays of the saved tensors (and the static values), checked as by ``check``."""
        saved = self.saved
        if saved is None:
            self.check()
        versions = self.versions
        values = []
        for i, t in enumerate(saved):  # type: ignore[arg-type]
            if t is None or t.__class__ is float or t.__class__ is int:
                values.append(t)
                continue
            try:
                st = t._st
            except AttributeError:  # another static value
                values.append(t)
                continue
            if st is not None and st.version != (0 if versions is None else versions[i]):
                self.check()
            values.append(t.array)
        return values

    def input_shape(self, i: int) -> tuple:
        """The shape of input ``i``, which requires grad: its maker knows it."""
        e = self.edges[i]
        if e.__class__ is Output:
            return e.node.shapes[e.index][0]
        return e.shape

    def _out_tensor(self) -> Any:
        """The saved result with its place in the graph (kept apart to avoid a reference cycle)."""
        if self.out.__class__ is tuple:
            return tuple(
                None if o is None else _placed(o, Output(self, i)) for i, o in enumerate(self.out)
            )
        return _placed(self.out, self)


def _placed(saved: Any, place: object) -> Any:
    """An alias of a saved result, at its place in the graph."""
    out = saved.alias()
    out._node = place
    if saved._st is not None:
        out._st, out._gen = saved._st, saved._st.gen
    return out
