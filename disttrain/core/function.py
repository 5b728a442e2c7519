"""``autograd.Function``: an operation whose backward the user writes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..context import thread
from ..errors import AutogradError, CaptureError
from .algebra import Algebra
from .gate import Tracer, describe
from .grad_mode import no_grad
from .node import GraphNode, Output, next_seq
from .tensor import Tensor, wrap


class FunctionCtx:
    """What forward leaves for backward. Any attribute may be set on it."""

    def __init__(self) -> None:
        self.to_save: tuple = ()
        self.non_differentiable: set[int] = set()
        self.dirty: set[int] = set()
        self.materialize_grads = True
        self.needs_input_grad: tuple = ()
        self.node: FunctionNode | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, where they are checked for in-place changes."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward: {type(t).__name__} given; only tensors (or None) are "
                    "saved this way; keep other values as attributes of ctx"
                )
        self.to_save = tensors

    save_for_forward = save_for_backward

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """These outputs have no gradient."""
        self.non_differentiable = {id(t) for t in outputs}

    def mark_dirty(self, *inputs: Tensor) -> None:
        """These inputs were changed in place by forward, which returns them."""
        self.dirty = {id(t) for t in inputs}

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (True) or None where an output has no gradient."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple:
        """What was saved. Inside backward only, or in forward before the end."""
        return self.to_save if self.node is None else self.node.unpack()


class FunctionNode(GraphNode):
    """One recorded run of a Function."""

    out = None
    saved: tuple | None = ()

    def __init__(self, cls: type, ctx: FunctionCtx, edges: tuple, outputs: tuple) -> None:
        self.cls, self.ctx, self.edges = cls, ctx, edges
        self.shapes = tuple(o.meta() for o in outputs)
        self.shape, self.dtype = self.shapes[0]
        self.seq = next_seq()
        own = {id(o): i for i, o in enumerate(outputs)}
        # A saved result is kept as an alias, since the result holds this node.
        self.kept = tuple((t.alias(), own[id(t)]) if id(t) in own else (t, -1) for t in ctx.to_save)
        self.versions = tuple(0 if t is None else t._version for t in ctx.to_save)
        ctx.to_save = ()

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return len(self.shapes)

    def name(self) -> str:
        return f"{self.cls.__name__}Backward"

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"

    def release(self) -> None:
        self.kept = ()
        self.saved = None

    def unpack(self) -> tuple:
        """The saved tensors, checked, results with their place in the graph."""
        if self.saved is None:
            raise AutogradError(
                f"backward: {self.name()} was already run and its saved tensors were freed; to go "
                "through a graph twice, pass retain_graph=True the first time"
            )
        out = []
        for (t, index), version in zip(self.kept, self.versions, strict=True):
            if t is not None and index < 0 and t._version != version:
                raise AutogradError(
                    f"backward: a tensor of shape {list(t.shape)} saved by {self.name()} was "
                    f"changed in place (version {t._version}, saved at {version}"
                    f"{f', at {t._st.site}' if t._st and t._st.site else ''}); .clone() it first"
                )
            if index >= 0:
                t = t.alias()
                t._node = Output(self, index)
            out.append(t)
        return tuple(out)

    def run(self, g: Any, tensors: bool, wanted: tuple | None = None) -> tuple:
        if self.saved is None:
            self.unpack()
        grads = g if isinstance(g, (tuple, list)) else (g,)
        given = tuple(self._cotangent(i, x, tensors) for i, x in enumerate(grads))
        result = self.cls.backward(self.ctx, *given)
        results = result if isinstance(result, tuple) else (result,)
        if len(results) > len(self.edges) and all(r is None for r in results[len(self.edges) :]):
            results = results[: len(self.edges)]
        if len(results) != len(self.edges):
            raise AutogradError(
                f"{self.cls.__name__}.backward returned {len(results)} gradients; forward had "
                f"{len(self.edges)} inputs, and each needs one (None where there is none)"
            )
        return tuple(
            self._checked(i, e, r, tensors)
            for i, (e, r) in enumerate(zip(self.edges, results, strict=True))
        )

    def _cotangent(self, i: int, g: Any, tensors: bool) -> Any:
        if g is None:
            return Algebra.zeros(*self.shapes[i]) if self.ctx.materialize_grads else None
        return g if tensors else wrap(g)

    def _checked(self, i: int, edge: Any, r: Any, tensors: bool) -> Any:
        if edge is None or r is None:
            return None
        if not isinstance(r, Tensor):
            raise AutogradError(
                f"{self.cls.__name__}.backward: gradient {i} is a {type(r).__name__}; a Tensor or "
                "None is needed"
            )
        return r if tensors else r.array


class Function:
    """Subclass with static ``forward(ctx, *args)`` and ``backward(ctx, *grads)``, then ``apply``.

    Or ``forward(*args)`` and ``setup_context(ctx, inputs, output)``. Backward is written with
    tensor operations, so that gradients of gradients follow. Works in place of a primitive
    everywhere but inside vmap and jvp, which say so.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("autograd.Function: define a static method forward")

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple, output: Any) -> None:
        """Save for backward what the two-part form needs."""

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        raise NotImplementedError("autograd.Function: define a static method backward")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, recorded as one operation."""
        if any(isinstance(a, Tracer) for a in args):
            raise CaptureError(
                f"{cls.__name__}.apply: a custom Function has no rule for vmap or jvp; write it "
                "with tensor operations, or call it outside the transform"
            )
        ctx = FunctionCtx()
        nodes = [a.graph_node() if isinstance(a, Tensor) else None for a in args]
        ctx.needs_input_grad = tuple(n is not None for n in nodes)
        recording = thread.grad_enabled and any(ctx.needs_input_grad)
        split = cls.setup_context is not Function.setup_context
        with no_grad():
            result = cls.forward(*args, **kwargs) if split else cls.forward(ctx, *args, **kwargs)
            if split:
                cls.setup_context(ctx, args, result)
        outputs = result if isinstance(result, tuple) else (result,)
        if not recording:
            return result
        outputs = tuple(_fresh(ctx, args, o, cls) for o in outputs)
        _record(cls, ctx, tuple(nodes), outputs)
        return outputs if isinstance(result, tuple) else outputs[0]


def _fresh(ctx: FunctionCtx, args: tuple, out: Any, cls: type) -> Any:
    """An output of its own: an input that is returned as it is becomes an alias of itself."""
    if isinstance(out, Tensor) and any(out is a for a in args):
        if id(out) in ctx.dirty:
            if out.is_leaf and out.requires_grad:
                raise AutogradError(
                    f"{cls.__name__}: a leaf that requires grad ({describe(out)}) was marked "
                    "dirty; change a clone of it"
                )
            return out
        return out.detach()
    return out


def _record(cls: type, ctx: FunctionCtx, edges: tuple, outputs: tuple) -> None:
    tensors = tuple(o for o in outputs if isinstance(o, Tensor))
    if not tensors:
        return
    node = FunctionNode(cls, ctx, edges, tensors)
    ctx.node = node
    for i, o in enumerate(tensors):
        floating = o.meta()[1].kind in "fcV"
        if floating and id(o) not in ctx.non_differentiable:
            o._node = Output(node, i)


def once_differentiable(fn: Callable) -> Callable:
    """For a ``backward`` that uses other than tensor operations: a second derivative is refused."""

    @functools.wraps(fn)
    def wrapped(ctx: FunctionCtx, *grads: Any) -> Any:
        if any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            raise AutogradError(
                f"{fn.__qualname__}: marked once_differentiable, so it has no second derivative"
            )
        with no_grad():
            return fn(ctx, *grads)

    return wrapped
