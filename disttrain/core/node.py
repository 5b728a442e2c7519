"""The graph: nodes, their outputs and the leaves' accumulators. No walk (see ``engine``).

A ``Node`` remembers which primitive ran, the tensors that its rules need (never arrays), and its
``edges``: per input the ``Node``, ``Output`` or ``AccumulateGrad`` that the gradient goes to, or
None. ``seq`` numbers nodes in order of creation, which the engine's order is derived from.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import AutogradError

next_seq = itertools.count(1).__next__


class HookHandle:
    """Takes a hook away again: ``handle.remove()``, or leaving a ``with`` block."""

    _ids = itertools.count(1)

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        self.id = next(HookHandle._ids)
        self._hooks = weakref.ref(hooks) if isinstance(hooks, HookDict) else lambda: hooks
        hooks[self.id] = hook

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class HookDict(dict):
    """Hooks by id. A dict that can be weakly referred to."""

    __slots__ = ("__weakref__",)


class GraphNode:
    """What the engine sees of every node."""

    edges: tuple = ()
    num_outputs = 1
    tensor_hooks: dict[int, HookDict] | None = None  # by output number
    pre_hooks: HookDict | None = None
    post_hooks: HookDict | None = None
    site: str | None = None
    seq = 0
    shape: Any = ()
    dtype: Any = None

    def name(self) -> str:
        return type(self).__name__

    @property
    def next_functions(self) -> tuple:
        return tuple(
            (None, 0) if e is None else (e.node, e.index) if e.__class__ is Output else (e, 0)
            for e in self.edges
        )

    def _sequence_nr(self) -> int:
        return self.seq

    def add_tensor_hook(self, index: int, hook: Callable) -> HookHandle:
        if self.tensor_hooks is None:
            self.tensor_hooks = {}
        return HookHandle(self.tensor_hooks.setdefault(index, HookDict()), hook)

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
    """The end of the graph at a leaf. ``store``, where set, writes the gradient in its own way."""

    seq = 1 << 62
    store: Callable[[Any, Any], None] | None = None
    accumulate_hooks: HookDict | None = None
    private = False  # a function transform's own leaf, which nobody else can ask for

    def __init__(self, variable: Any) -> None:
        self._variable = weakref.ref(variable)
        self.shape, self.dtype = variable.meta()

    @property
    def variable(self) -> Any:
        return self._variable()

    def name(self) -> str:
        return "AccumulateGrad"

    def add_post_hook(self, hook: Callable) -> HookHandle:
        if self.accumulate_hooks is None:
            self.accumulate_hooks = HookDict()
        return HookHandle(self.accumulate_hooks, hook)

    def __repr__(self) -> str:
        return f"<AccumulateGrad of shape {list(self.shape)}>"


class Output:
    """One output of a node that has several."""

    __slots__ = ("index", "node")

    def __init__(self, node: Any, index: int) -> None:
        self.node, self.index = node, index

    def name(self) -> str:
        return self.node.name()


class Node(GraphNode):
    """One recorded run of a primitive."""

    versions: tuple | None = None
    out: Any = None
    poison: str | None = None
    shapes: tuple | None = None  # (shape, dtype) per output where there are several

    def __init__(
        self, prim: Any, edges: tuple, saved: tuple, params: dict, shape: tuple, dtype: Any
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

    def release(self) -> None:
        """Drop what the rules needed; a later run is an error."""
        for t in self.saved or ():
            if t is not None:
                self.saved = None
                break
        if self.out is not None:
            self.saved = self.out = None

    def check(self) -> None:
        """Raise unless the saved tensors are there and unchanged."""
        if self.saved is None:
            raise AutogradError(
                f"backward: {self.name()} was already run and its saved tensors were freed; to go "
                "through a graph twice, pass retain_graph=True the first time" + self.made_at()
            )
        if self.poison is not None:
            shape = () if self.shape is None else self.shape
            raise AutogradError(self._changed("its result", shape, self.poison))
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
            f"the gradient but was changed by an in-place operation{f' at {site}' if site else ''};"
            " use the out-of-place form there, or .clone() the tensor first" + self.made_at()
        )

    def made_at(self) -> str:
        if self.site:
            return f". The operation ran at {self.site}"
        return ". (autograd.set_detect_anomaly(True) names the forward line.)"

    def run(self, g: Any, tensors: bool, wanted: tuple | None = None) -> tuple:
        """The gradients for ``edges``, given the gradient ``g`` (a tuple when there are several
        outputs) as raw arrays, or as Tensors when ``tensors``. ``wanted``: for which edges."""
        if tensors:
            self.check()
            values: Any = self.saved
            out = self._out_tensor() if self.out is not None else None
        else:
            values = self._arrays()
            out = self.out
            if out is not None:
                if out.__class__ is tuple:
                    out = tuple([None if o is None else o.array for o in out])
                else:
                    out = out.array
        prim = self.prim
        if prim.vjp_all is not None:
            needs = wanted or tuple([e is not None for e in self.edges])
            return prim.vjp_all(g, out, values, self, needs)
        rules = prim.rules
        edges = self.edges
        if wanted is None:
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
        if saved is None or self.poison is not None:
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
            outs = tuple(None if o is None else o.alias() for o in self.out)
            for i, o in enumerate(outs):
                if o is not None:
                    o._node = Output(self, i)
            return outs
        out = self.out.alias()
        out._node = self
        return out
