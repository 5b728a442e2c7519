"""``autograd.Function``: an operation whose backward the user writes."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

from ...backends.device.array import DeviceArray
from ...context import thread
from ...errors import AutogradError
from ...trace import call_site
from ..algebra import Algebra
from ..gate import Tracer, describe
from ..grad_mode import no_grad
from ..node import GraphNode, Output, next_seq
from ..saved import Packed
from ..tensor import Tensor, wrap
from ..writes import check_inplace


class FunctionCtx:
    """What forward leaves for backward. Any attribute may be set on it; it can also be read from
    the ``grad_fn`` of the results."""

    needs_input_grad: tuple = ()
    _materialize = True
    _materialize_non_diff_grads = True
    _to_save: tuple = ()
    _for_forward: tuple | None = None
    _non_differentiable: tuple = ()
    _dirty: tuple = ()
    _pushing = False  # while jvp runs
    _node: Any = None  # a weak reference to the node, once there is one

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, where they are checked for in-place changes."""
        recorded = any(self.needs_input_grad)
        self._to_save = _only_tensors("save_for_backward", tensors) if recorded else tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for ``jvp``."""
        self._for_forward = _only_tensors("save_for_forward", tensors)

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """These outputs have no gradient."""
        self._non_differentiable = outputs

    def mark_dirty(self, *inputs: Tensor) -> None:
        """These inputs were changed in place by forward, which returns them."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (True) or None where an output has no gradient."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple:
        """What was saved (in ``jvp``: by ``save_for_forward``)."""
        if self._pushing:
            return self._for_forward or ()
        node = None if self._node is None else self._node()
        return self._to_save if node is None else node.unpack()


def _only_tensors(where: str, values: tuple) -> tuple:
    for t in values:
        if t is not None and not isinstance(t, Tensor):
            raise TypeError(
                f"{where} can only save variables, but {type(t).__name__} was given: tensors (or "
                "None) are saved this way; keep other values as attributes of ctx"
            )
    return values


def _place_of(result: Tensor) -> Any:
    array = result.__dict__.get("array") if isinstance(result, Tensor) else None
    return array.here() if isinstance(array, DeviceArray) else None


class FunctionNode(GraphNode):
    """One recorded run of a Function."""

    function: Any  # set by Function.__init_subclass__, which makes a kind of node per Function
    wants_none = True
    freed = False
    places: tuple | None = None  # of results on accelerators

    def __init__(self, ctx: FunctionCtx, inputs: tuple, edges: tuple, outputs: tuple) -> None:
        self.ctx, self.edges = ctx, edges
        self.given = tuple([isinstance(a, Tensor) for a in inputs])
        self.shapes = tuple([o.meta() if isinstance(o, Tensor) else None for o in outputs])
        found = [o.__dict__.get("array") for o in outputs if isinstance(o, Tensor)]
        if any(a.__class__ is DeviceArray for a in found):
            self.places = tuple([_place_of(o) for o in outputs])
            self.on_device = True
            self.stream = next(a.stream for a in found if a.__class__ is DeviceArray)
        self.silent = {i for i, o in enumerate(outputs) if _among(o, ctx._non_differentiable)}
        self.seq = next_seq()
        self.kept: tuple = ()
        ctx._node = weakref.ref(self)

    def keep(self, outputs: tuple) -> None:
        """Take over what forward has saved."""
        tensors, self.ctx._to_save = self.ctx._to_save, ()
        self.kept = tuple([None if t is None else _Kept(t, outputs, self) for t in tensors])

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return len(self.shapes)

    def name(self) -> str:
        return type(self).__name__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "ctx":
            raise AttributeError(name)
        return getattr(self.ctx, name)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"

    def release(self) -> None:
        self.freed = self.freed or bool(self.kept)
        self.kept = ()

    def unpack(self) -> tuple:
        """The saved tensors, checked, results with their place in the graph."""
        self._check()
        return tuple([None if k is None else k.tensor(self) for k in self.kept])

    def _check(self) -> None:
        if self.freed:
            raise AutogradError(
                f"backward: {self.name()} was already run and its saved tensors were freed. "
                "Specify retain_graph=True the first time to backward through the graph a second "
                f"time (or to read them after backward){self.made_at()}"
            )

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        self._check()
        grads = g if isinstance(g, (tuple, list)) else (g,)
        given = [self._cotangent(i, x, tensors) for i, x in enumerate(grads)]
        result = self.function._rule()(self.ctx, *given)
        results = result if isinstance(result, tuple) else (result,)
        n = len(self.edges)
        if len(results) > n and all(r is None for r in results[n:]):
            results = results[:n]
        if len(results) != n:
            raise AutogradError(
                f"function {self.name()} returned an incorrect number of gradients (expected {n}, "
                f"got {len(results)}): backward gives one for each input of forward, None where "
                "there is none"
            )
        return tuple([self._checked(i, r, tensors) for i, r in enumerate(results)])

    def run_without(self, tensors: bool) -> tuple:
        return self.run((None,) * len(self.shapes), tensors)

    def _cotangent(self, i: int, g: object, tensors: bool) -> Any:
        ctx, meta = self.ctx, self.shapes[i]
        if g is None:
            if meta is None or not ctx._materialize:
                return None
            if i in self.silent and not ctx._materialize_non_diff_grads:
                return None
            there = None if self.places is None else self.places[i]
            if there is not None:
                return wrap(there.make(lambda xp: xp.zeros(*meta)))
            return Algebra.zeros(*meta)
        return g if tensors else wrap(g)

    def _checked(self, i: int, r: Tensor | None, tensors: bool) -> Any:
        if r is None:
            return None
        if not isinstance(r, Tensor):
            raise TypeError(
                f"expected Variable or None (got {type(r).__name__}) as the gradient of input {i} "
                f"of {self.name()}"
            )
        if not self.given[i]:
            raise AutogradError(
                f"function {self.name()} returned a gradient different than None at position "
                f"{i + 1}, but the corresponding forward input was not a Variable"
            )
        if self.edges[i] is None:
            return None
        return r if tensors else r.array


class _Kept:
    """One saved tensor. A result of the function is kept as an alias, since the result holds the
    node."""

    __slots__ = ("index", "value", "version")

    def __init__(self, t: Tensor, outputs: tuple, node: FunctionNode) -> None:
        self.index = next((i for i, o in enumerate(outputs) if o is t), -1)
        self.version = t._version
        if thread.saving:
            place = None if self.index >= 0 else t.graph_node()
            self.value: Any = Packed(t, place, thread.saving[-1])
        elif self.index >= 0:
            self.value = t.alias()
            self.value._st = t.storage_cell()
        else:
            self.value = t

    def tensor(self, node: FunctionNode) -> Tensor:
        t = self.value
        if t.__class__ is Packed:
            t = t.tensor()
        elif t._version != self.version:
            site = t._st.site
            raise AutogradError(
                f"backward: a tensor of shape {list(t.shape)} saved by {node.name()} was changed "
                f"in-place (modified by an inplace operation{f' at {site}' if site else ''}: "
                f"version {t._version}, saved at {self.version}); .clone() it first{node.made_at()}"
            )
        if self.index >= 0:
            st = t._st
            t = t.alias()
            if self.index not in node.silent:
                t._node = Output(node, self.index)
            if st is not None:
                t._st, t._gen = st, st.gen
        return t


class Function:
    """Subclass with static ``forward(ctx, *args)`` and ``backward(ctx, *grads)``, then ``apply``.

    Or ``forward(*args)`` and ``setup_context(ctx, inputs, output)``. Backward is written with
    tensor operations, so that gradients of gradients follow. For forward mode define
    ``jvp(ctx, *tangents)``; for vmap ``vmap(info, in_dims, *args)``, or set
    ``generate_vmap_rule = True`` when forward and backward are made of tensor operations.
    """

    generate_vmap_rule = False
    _backward_cls: type = FunctionNode

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls._backward_cls = type(f"{cls.__name__}Backward", (FunctionNode,), {"function": cls})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AutogradError(
            f"{type(self).__name__}: Legacy autograd function with non-static forward method is "
            f"deprecated; make forward and backward static and call {type(self).__name__}.apply"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "autograd.Function: you must implement the forward function for custom "
            "autograd.Function, as a static method"
        )

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple, output: Any) -> None:
        """Save for backward what the two-part form needs."""

    @staticmethod
    def backward(ctx: FunctionCtx, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "autograd.Function: you must implement either the backward or vjp method for your "
            "custom autograd.Function to use it with backward mode AD, as a static method"
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: FunctionCtx, *tangents: Any) -> Any:
        raise NotImplementedError(
            "autograd.Function: you must implement the jvp function for custom autograd.Function "
            "to use it with forward mode AD, as a static method"
        )

    @staticmethod
    def vmap(info: object, in_dims: tuple, *args: object) -> Any:
        raise NotImplementedError(
            "autograd.Function: to use it inside vmap, set generate_vmap_rule = True (where "
            "forward and backward consist of tensor operations), or define a static method vmap"
        )

    @classmethod
    def _rule(cls) -> Callable:
        """backward, or vjp where that is defined in its place."""
        if cls.vjp is Function.vjp:
            return cls.backward
        if cls.backward is not Function.backward:
            raise AutogradError(
                f"{cls.__name__}: Implementing both 'backward' and 'vjp' for a custom Function is "
                "not allowed; they are two names of one rule: keep one"
            )
        return cls.vjp

    @classmethod
    def apply(cls, *args: object, **kwargs: object) -> Any:
        """Run forward, recorded as one operation."""
        if cls.setup_context is not Function.setup_context:
            args, kwargs = _with_defaults(cls.forward, args, kwargs), {}
        level = None
        for a in args:
            if isinstance(a, Tracer) and (level is None or a.interp.level > level.level):
                level = a.interp
        if level is not None:
            return level.apply_function(cls, args, kwargs)
        return run(cls, FunctionCtx(), args, kwargs)


def _with_defaults(forward: Callable, args: tuple, kwargs: dict) -> tuple:
    """All arguments of ``forward`` by position, so that ``setup_context`` sees every one."""
    code = getattr(forward, "__code__", None)
    if not kwargs and code is not None and code.co_argcount == len(args):
        return args
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


def run(cls: Any, ctx: FunctionCtx, args: tuple, kwargs: dict) -> Any:
    """Forward of ``cls`` on ``args``, which fills ``ctx``; recorded where gradients are wanted."""
    edges = tuple([a.graph_node() if isinstance(a, Tensor) else None for a in args])
    ctx.needs_input_grad = tuple([e is not None for e in edges])
    recording = thread.grad_enabled and any(ctx.needs_input_grad)
    with no_grad():
        if cls.setup_context is Function.setup_context:
            result = cls.forward(ctx, *args, **kwargs)
        else:
            result = cls.forward(*args)
            cls.setup_context(ctx, args, result)
    given = result if isinstance(result, tuple) else (result,)
    _check_dirty(cls, ctx, given, recording)
    outputs = tuple([_own(ctx, args, o) for o in given])
    if recording and any(isinstance(o, Tensor) for o in outputs):
        _record(cls, ctx, args, edges, outputs)
    return outputs if isinstance(result, tuple) else outputs[0]


def _among(value: Tensor, tensors: tuple) -> bool:
    return any(value is t for t in tensors)


def _check_dirty(cls: type, ctx: FunctionCtx, outputs: tuple, recording: bool) -> None:
    for t in ctx._dirty:
        if not _among(t, outputs):
            raise AutogradError(
                f"{cls.__name__}: Some elements marked as dirty during the forward method were not "
                f"returned as output ({describe(t)}). The inputs that are modified inplace must "
                "all be outputs of the Function"
            )
        if recording:
            check_inplace(t, cls.__name__)


def _own(ctx: FunctionCtx, args: tuple, out: Tensor | int) -> Any:
    """An output of its own: an input that is returned as it is becomes an alias of itself."""
    if not isinstance(out, Tensor) or _among(out, ctx._dirty):
        return out
    if _among(out, args):
        alias = out.detach()
        alias._view = (out, None, (), {})  # which no write may be recorded on
        silent = ctx._non_differentiable
        ctx._non_differentiable = tuple([alias if t is out else t for t in silent])
        return alias
    return out


def _record(cls: Any, ctx: FunctionCtx, args: tuple, edges: tuple, outputs: tuple) -> None:
    node = cls._backward_cls(ctx, args, edges, outputs)
    for i, o in enumerate(outputs):
        if not isinstance(o, Tensor):
            continue
        place = None
        if i not in node.silent and o.meta()[1].kind in "fcV":
            place = Output(node, i)
        if _among(o, ctx._dirty) and place is not None:
            moved = o.alias()
            moved._node = place
            Algebra.move_graph(o, moved)
        else:
            o._node = place
    node.keep(outputs)
    ctx._non_differentiable = ctx._dirty = ()
    if thread.anomaly:
        node.site = call_site()


class _Refusal(Function):
    """The identity, whose derivative is refused."""

    @staticmethod
    def forward(ctx: Any, name: str, out: Tensor, *grads: Any) -> Tensor:
        ctx.function = name
        return out.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AutogradError(
            "trying to differentiate twice a function that was marked with @once_differentiable "
            f"({ctx.function}); write its backward with tensor operations and drop the mark"
        )


def once_differentiable(fn: Callable) -> Callable:
    """For a ``backward`` that uses other than tensor operations: it runs unrecorded, and a second
    derivative through it is an error when it is asked for."""

    @functools.wraps(fn)
    def wrapped(ctx: FunctionCtx, *grads: Tensor) -> Any:
        with no_grad():
            result = fn(ctx, *grads)
        if not thread.grad_enabled or not any(
            isinstance(g, Tensor) and g.requires_grad for g in grads
        ):
            return result
        several = isinstance(result, tuple)
        guarded = tuple(
            _Refusal.apply(fn.__qualname__, r, *grads) if isinstance(r, Tensor) else r
            for r in (result if several else (result,))
        )
        return guarded if several else guarded[0]

    return wrapped
