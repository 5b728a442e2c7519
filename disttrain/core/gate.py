"""The one gate: every operation on Tensors goes through here.

A ``Primitive`` holds every rule of one operation. Called with arrays it computes arrays; called
with Tensors it goes through the gate: compute, then record a node when a gradient will be wanted.

With an empty interpreter stack (``thread.mode`` RECORD or PLAIN) the gate is a fast path. ``SLOW``
means that interpreters are active. They come in two kinds:

* *levels* (vmap, jvp): values are ``Tracer``s, and an operation belongs to the highest level among
  its arguments; its ``process`` works on the tracers' inner values, which lie one level lower;
* *dynamic* ones (capture, autocast, profiling) see every operation that reaches plain Tensors:
  ``process(prim, args, params, proceed)``, innermost first, each going on through ``proceed``.

A node is recorded at the level of the operation, on whatever object stands for the result there,
so transforms compose in any order without a second code path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import MethodType
from typing import Any, TypeAlias

import numpy as np

from ..backends.array_kinds import ArrayKind, heaviest
from ..backends.null import NullArray
from ..context import SLOW, thread
from ..errors import (
    DeviceError,
    DimError,
    DisttrainError,
    DTypeError,
    LinAlgError,
    ShapeError,
    cause,
)
from ..trace import call_site
from .annotations import BatchRule, Jvp, Promotion, Rule, Samples, ShapeRule
from .composed import Composed
from .node import NOTHING, Node, Output, next_seq
from .saved import pack_node
from .tensor import Storage, Tensor, wrap
from .tensor_node import TensorNode
from .tracer import Tracer, join
from .writes import touched

_new = object.__new__
ndarray = np.ndarray
# Of one that gives several views: (params, i) -> (primitive, params) of number i.
Part: TypeAlias = "Callable[[dict, int], tuple[Primitive, dict]]"
# Results -> numbers of those that the rule reads.
Kept: TypeAlias = Callable[[tuple], Sequence[int]]


class Primitive:
    """One operation with all its rules. Declared through ``ops.declare``.

    forward(*arrays, **params) -> array or tuple of arrays
    rules[i](g, out, values, node) -> gradient for argument i; or vjp_all(..., needs) for all
    saves[i]: which arguments rule i reads; saves_out, out_bits: whether any rule reads the
    result, and which
    jvp, batch: see ``func``; shape(*metas, **params) -> (shape, dtype) or a list of them
    expr: scalar expression for kernels; view: the result shares memory with argument 0
    """

    __qualname__: str  # of those that are public: ``ops.names``

    def __init__(self, name: str, forward: Rule, args: tuple[str, ...]) -> None:
        self.name, self.forward, self.args = name, forward, args
        self.rules: tuple = ()
        self.vjp_all: Rule | None = None
        self.saves: tuple[tuple[int, ...], ...] = ()
        self.save_bits: list[int] = []
        self.saves_out: bool = False
        self.out_bits: int = 0  # the arguments whose rules read the result
        self.own_result: bool = False  # the rule's copy of the result is made before a write to it
        self.differentiable: bool = False
        self.multi: bool = False
        self.jvp: Jvp | str | None = None
        self.dual: Any = None  # (primals, tangents) -> (results, tangents), by one run
        self.batch: BatchRule | None = None
        self.shape: ShapeRule | None = None
        self.expr: Rule | None = None
        self.elementwise: bool = False
        self.view: bool = False
        self.part: Part | None = None
        self.promote: Promotion | None = None
        self.mutates: tuple[int, ...] = ()
        self.nondiff_outputs: tuple[int, ...] = ()
        self.kept: Kept | None = None
        self.random: bool = False
        self.checks: bool = False  # raises for some values: runs even where nobody needs its result
        self.outward: bool = False  # an effect: never dropped, merged, or moved across another
        self.samples: Samples | None = None
        self.takes: str | None = None  # numpy's kinds or types that it has; None: all
        self.shard: Rule | None = None  # how its dimensions belong together: ``ops.layouts``
        self.kinds: bool = False  # its forward takes arrays of all kinds as they are
        self.on_device: Any = None  # (platform, *raw arrays, **params): where forward cannot serve
        self.prepared: Callable[[dict], Rule] | None = None  # params -> forward without any
        self.together: Any = None  # (params) -> updates of many sets of a device's arrays
        self.grouped: Any = None  # (sets of arrays) -> updates of all of them by one call
        self.node_class: Any = None  # of its nodes, where the tensors' own class of them is wrong
        self.node_kind: Any = None  # the class that its nodes show to programs, once one looked
        self.simple: bool = False  # one tensor in, one out, nothing special: the gate's short way

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def __get__(self, instance: Tensor | None, owner: type) -> Any:
        """As a method, a primitive takes the tensor as its first argument."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **params: Any) -> Any:
        if self.simple and len(args) == 1 and isinstance(args[0], Tensor):
            return _gate_simple(self, args[0], params)
        for a in args:
            if isinstance(a, Tensor):
                return gate(self, args, params)
        return self.compute(args, params)

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        """Run on raw arrays (or scalars); an array of another kind than numpy's runs it itself."""
        for a in arrays:
            if a.__class__ is not ndarray and isinstance(a, ArrayKind):
                return heaviest(arrays).run(self, arrays, params)
        return self.forward(*arrays, **params)


def finish(result: ArrayKind | np.generic | np.ndarray) -> Any:
    """numpy gives scalars for 0-d results; the gate deals in arrays."""
    if result.__class__ is ndarray or isinstance(result, ArrayKind):
        return result
    return np.asarray(result)


def gate(prim: Primitive, args: tuple, params: dict) -> Any:
    """Run ``prim`` on ``args`` (Tensors and static values), record it where needed."""
    mode = thread.mode
    if mode == SLOW:
        return _surrounded(prim, args, params)
    if prim.promote is not None:
        args = prim.promote(args)
    arrays = [a.array if isinstance(a, Tensor) else a for a in args]
    try:
        result = prim.compute(arrays, params)
    except DisttrainError:
        raise
    except Composed:
        return _composition(args)(prim, args, params)
    except (ValueError, TypeError, IndexError, NotImplementedError) as error:
        raise explain(prim, args, params, error) from cause(error)
    if prim.mutates:
        return _mutated(prim, args)
    out: Any
    if prim.multi:
        out = tuple([wrap(finish(r)) for r in result])
        if prim.view:
            _share_parts(prim, args[0], params, out)
    else:
        if result.__class__ is ndarray:
            out = _new(Tensor)
            out.array = result
        else:
            out = wrap(finish(result))
        if prim.view:
            _share(prim, args[0], params, out)
    if mode or not prim.differentiable:
        return out
    record(prim, args, params, out)
    return out


def _gate_simple(prim: Primitive, a: Tensor, params: dict) -> Any:
    """The gate for one plain array in and one out: the same steps, none of the loops."""
    mode = thread.mode
    if mode == SLOW:
        return _surrounded(prim, (a,), params)
    x = a.array
    if x.__class__ is not ndarray:
        return gate(prim, (a,), params)
    try:
        result = prim.forward(x, **params)
    except DisttrainError:
        raise
    except (ValueError, TypeError, IndexError, NotImplementedError) as error:
        raise explain(prim, (a,), params, error) from cause(error)
    out = _new(Tensor)
    out.array = result if result.__class__ is ndarray else finish(result)
    if prim.view:
        _share(prim, a, params, out)
    if mode or not prim.differentiable:
        return out
    st = a._st
    version = 0
    if st is not None:
        if st.gen != a._gen:
            a._refresh_node()
        version = st.version
    before = a._node
    if before is None:
        return out
    result = out.array
    kind = result.dtype
    if kind.kind not in "fcV":
        return out
    saved = (a,) if prim.save_bits[0] else NOTHING
    out._node = node = _new(Node)
    node.prim = prim
    node.edges = (before,)
    node.saved = saved
    node.params = params
    node.shape = result.shape
    node.dtype = kind
    node.seq = next_seq()
    if version:
        node.versions = (version,)
    if prim.saves_out:
        node.out = wrap(result)
    return out


def explain(prim: Primitive, args: tuple, params: dict, error: Exception) -> Exception:
    """The error of a forward, with the operation and what it was given."""
    given = ", ".join(
        f"{name}: {describe(a)}" for name, a in zip(prim.args, args, strict=False) if a is not None
    )
    extra = "".join(f", {k}={v!r}" for k, v in params.items() if v is not None)
    kind = _EXPLAINED.get(type(error), ShapeError)
    if prim.shape is not None and kind is ShapeError:
        try:  # our own rule often says it more plainly than numpy does
            prim.shape(*[_metadata(a) for a in args], **params)
        except ValueError as plainer:
            error = plainer
    return kind(f"{prim.name.strip('_')}({given}{extra}): {error}")


_EXPLAINED = {
    TypeError: DTypeError,
    IndexError: DimError,
    NotImplementedError: DeviceError,
    np.linalg.LinAlgError: LinAlgError,
}


def _metadata(a: Tensor | None) -> Any:
    return NullArray(*a.meta()) if isinstance(a, Tensor) else a


def describe(a: object) -> str:
    """A tensor as dtype and shape, anything else as itself; for messages."""
    if isinstance(a, Tensor):
        shape, kind = a.meta()
        return f"{kind}{list(shape)}"
    return repr(a)


def _share(
    prim: Primitive, source: Tensor, params: dict, out: Tensor, part: int | None = None
) -> None:
    """Note that ``out`` shares memory with ``source``, if it does, and how to make it again.

    One of several outputs (number ``part``), and a view made under no_grad (without a primitive),
    cannot be changed in place while gradients are recorded.
    """
    array, given = out.array, source.array
    if array.__class__ is ndarray:
        base = array.base
        known = base is given or array is given or (base is not None and base is given.base)
        if not known and (base is None or not np.may_share_memory(array, given)):
            return
        if array is given:
            out.array = given.view()
    elif isinstance(array, ArrayKind) and not array.shares_with(given):
        return
    st = source._st
    if st is None:
        st = source._st = Storage()
    elif st.gen != source._gen:
        source._refresh_node()
    out._st = st
    out._gen = st.gen
    out._view = (source, prim if thread.grad_enabled else None, part, params)


def _share_parts(prim: Primitive, source: Tensor, params: dict, outs: tuple) -> None:
    for i, o in enumerate(outs):
        _share(prim, source, params, o, i)


def record(
    prim: Primitive, args: tuple, params: dict, out: Tensor | tuple, level: object = None
) -> None:
    """Make the node of ``out`` if one of ``args`` requires grad at ``level``."""
    edges = []
    bits = 0
    bit = 1
    for a in args:
        node = None
        if isinstance(a, Tensor) and getattr(a, "interp", None) is level:
            st = a._st
            if st is not None and st.gen != a._gen:
                a._refresh_node()
            node = a._node
            if node is not None:
                bits |= bit
        edges.append(node)
        bit <<= 1
    if not bits:
        return
    attach(prim, tuple(edges), bits, args, params, out)


def attach(prim: Primitive, edges: tuple, bits: int, args: tuple, params: dict, out: Any) -> None:
    """Make the node with ``edges`` (``bits`` marks which of them are there) and give it to out."""
    keep = 0
    for i, mask in enumerate(prim.save_bits):
        if bits >> i & 1:
            keep |= mask
    versions = None
    saved = []
    for i, a in enumerate(args):
        if keep >> i & 1:
            saved.append(a)
            if isinstance(a, Tensor) and a._st is not None and a._st.version:
                versions = versions or [0] * len(args)
                versions[i] = a._st.version
        else:
            saved.append(None)
    if prim.multi:
        make = prim.node_class or (out[0] if out else Tensor).node_class
        node = make(prim, edges, tuple(saved), params, None, None)
        node.shapes = tuple(o.meta() for o in out)
        for i, o in enumerate(out):
            if i not in prim.nondiff_outputs and o.meta()[1].kind in "fcV":
                o._node = Output(node, i)
        if bits & prim.out_bits:
            # Statistics for the rule, where there are any, and not what the program goes on with.
            kept: Sequence[int] = prim.nondiff_outputs or range(len(out))
            if prim.kept is not None:
                kept = prim.kept(out)
            node.out = tuple(o.alias() if i in kept else None for i, o in enumerate(out))
        if make is Node and out and out[0].__dict__.get("array").__class__ is not ndarray:
            _by_tensors(node, out[0], args)
    else:
        shape, kind = out.meta()
        if kind.kind not in "fcV":
            return
        make = prim.node_class or out.node_class
        out._node = node = make(prim, edges, tuple(saved), params, shape, kind)
        if bits & prim.out_bits:
            node.out = out.alias()
        if make is Node and out.__dict__.get("array").__class__ is not ndarray:
            _by_tensors(node, out, args)
    if versions is not None:
        node.versions = tuple(versions)
    if thread.mode == SLOW:
        if thread.saving:
            pack_node(node, out)
        if thread.anomaly:
            node.site = call_site()


def _by_tensors(node: Node, out: Tensor, args: tuple) -> None:
    """Let the rules of ``node`` run on Tensors, where ``out`` is of a kind that wants it."""
    if getattr(out.__dict__.get("array"), "rules_on_tensors", False):
        node.__class__ = TensorNode
        node.stream = out.array.stream
        node.on_host = tuple(  # type: ignore[attr-defined]
            i for i, e in enumerate(node.edges)
            if e is not None and args[i].__dict__.get("array").__class__ is ndarray
        )  # fmt: skip


def _surrounded(prim: Primitive, args: tuple, params: dict) -> Any:
    """The gate where there is more to do with operations than to run and record them."""
    composition = _composition(args)
    if composition is not None:
        return composition(prim, args, params)
    if thread.autocast is not None:
        args = thread.autocast.cast(prim, args)
    if prim.promote is not None:
        args = prim.promote(args)
    return _slow(prim, args, params)


def _composition(args: tuple) -> Any:
    """What does an operation on ``args`` where one of them is not computed with as an array."""
    for a in args:
        if isinstance(a, Tensor) and a._composes is not None:
            return a._composes
    return None


def _slow(prim: Primitive, args: tuple, params: dict) -> Any:
    """The gate with interpreters on the stack."""
    if prim.mutates and thread.before_write is not None:
        for i in prim.mutates:
            thread.before_write(args[i])
    top = None
    for a in args:
        if isinstance(a, Tensor) and a._st is not None and a._st.joined and "array" in a.__dict__:
            join(a)
        if isinstance(a, Tracer):
            if a._st is not None and a._st.gen != a._gen:
                a._refresh_node()
            if top is None or a.interp.level > top.level:
                top = a.interp
    if prim.random:
        top = _drawing(top)
    if top is not None:
        if top.adopts:
            args = top.adopt(args)
        if top.mixes:
            args = top.mixed(args)
        out = top.process(prim, args, params)
        if prim.mutates:
            return out
        if prim.view and getattr(args[0], "interp", None) is top:
            st = args[0].storage_cell()
            for i, o in enumerate(out if prim.multi else (out,)):
                o._st, o._gen = st, st.gen
                o._view = (args[0], prim, i if prim.multi else None, params)
    else:
        out = _through(prim, args, params, len(thread.stack))
        if prim.mutates:
            return _mutated(prim, args)
        if prim.view:
            (_share_parts if prim.multi else _share)(prim, args[0], params, out)
    if thread.grad_enabled and prim.differentiable:
        record(prim, args, params, out, top)
    return out


def _drawing(top: Any) -> Any:
    """The level that a draw of random numbers belongs to: the innermost that wants to see them."""
    for interp in reversed(thread.stack):
        if not interp.dynamic and interp.draws:
            return interp if top is None or interp.level > top.level else top
    return top


def _through(prim: Primitive, args: tuple, params: dict, depth: int) -> Any:
    """Run on plain Tensors through the dynamic interpreters below ``depth``, without recording."""
    stack = thread.stack
    while depth:
        depth -= 1
        interp = stack[depth]
        if interp.dynamic:
            return interp.process(prim, args, params, partial(_through, depth=depth))
    arrays = [a.array if isinstance(a, Tensor) else a for a in args]
    try:
        result = prim.compute(arrays, params)
    except DisttrainError:
        raise
    except (ValueError, TypeError, IndexError, NotImplementedError) as error:
        raise explain(prim, args, params, error) from cause(error)
    if prim.mutates and result.__class__ is not ndarray:  # what it wrote to, on a device
        return args[prim.mutates[0]]
    if prim.multi:
        return tuple(wrap(finish(r)) for r in result)
    return wrap(finish(result))


def _mutated(prim: Primitive, args: tuple) -> Any:
    """Count the writes of a mutating primitive; its result is what it wrote to."""
    for i in prim.mutates:
        touched(args[i])
    first = args[prim.mutates[0]]
    return tuple(args[i] for i in prim.mutates) if prim.multi else first
