"""jvp: forward-mode derivatives. Every value carries a tangent, which each operation moves along.

The rule of a primitive is its own, the vjp's where the Jacobian is diagonal, or the vjp transposed
(it is linear in the cotangent, so differentiating it with respect to that gives the jvp).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from ..context import thread
from ..core.algebra import Algebra
from ..core.backward.autograd import grad
from ..core.gate import Primitive, Tracer
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor
from ..core.writes import Inside, memory
from ..errors import AutogradError, ShapeError
from ..ops.functions import inplace
from ..ops.functions.creation import create
from ..ops.primitives.elementwise import conj
from ..ops.primitives.views import expand, reshape
from .functions import push_function
from .levels import Level, check, followed, is_written, leave_private, renew, settle
from .numbers import as_tensor
from .reverse import output_leaves, split_aux

_new = object.__new__
_JVP = "jvp(f, primals, tangents)"


class DualTracer(Tracer):
    """A value ``inner`` with its ``tangent`` (None: zero). Its numbers may be read."""

    tangent: Tensor | None

    @property
    def array(self) -> Any:
        return super().array if self.interp.over else self.inner.array

    def meta(self) -> tuple:
        return self.inner.meta()


class Forward(Level):
    """One active jvp."""

    name = "jvp"
    joins = True
    deferred = False  # whether its tangents are to be moved along later

    def wrap(self, inner: Tensor, tangent: Tensor | None) -> DualTracer:
        out = _new(DualTracer)
        out.inner, out.tangent, out.interp = inner, tangent, self
        return out

    def lift(self, value: Tensor) -> DualTracer:
        return self.wrap(value, None)

    def detached(self, tracer: Tracer) -> DualTracer:
        return self.wrap(tracer.inner.detach(), None)

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        check(self, prim)
        primals = tuple(a.inner if self.owns(a) else a for a in args)
        tangents = tuple(a.tangent if self.owns(a) else None for a in args)
        if prim.dual is not None and not self.deferred and any(t is not None for t in tangents):
            return self._wrapped(*prim.dual(primals, tangents))
        out = prim(*primals, **params)
        if all(t is None for t in tangents) or not prim.differentiable:
            return self._wrapped(out, None)
        return self._wrapped(out, self.moved(prim, primals, tangents, params, out))

    def moved(
        self, prim: Primitive, primals: tuple, tangents: tuple, params: dict, out: Any
    ) -> Any:
        """The tangent of ``prim``'s result."""
        return push(prim, primals, tangents, params, out)

    def result(self, out: Tensor, tangent: Tensor | None) -> Tensor:
        """The result of a custom function."""
        return self.wrap(out, tangent)

    def apply_function(self, cls: type, args: tuple, kwargs: dict) -> Any:
        return push_function(self, cls, args, kwargs)

    def _wrapped(self, out: Any, tangents: Any) -> Any:
        if isinstance(out, tuple):
            each = tangents if isinstance(tangents, tuple) else (None,) * len(out)
            return tuple(self.wrap(o, t) for o, t in zip(out, each, strict=True))
        return self.wrap(out, tangents)


def push(
    prim: Primitive, primals: tuple, tangents: tuple, params: dict, out: Any,
    kept: dict | None = None,
) -> Any:  # fmt: skip
    """The tangent of ``prim``'s result. ``kept``: the same one for each time that the same values
    are moved along, where a transposed rule is kept."""
    if prim.jvp == "linear":
        return prim(*[_dense(p, t) for p, t in zip(primals, tangents, strict=True)], **params)
    if prim.jvp == "multilinear":
        total = None
        for i, t in enumerate(tangents):
            if t is not None:
                term = prim(*primals[:i], t, *primals[i + 1 :], **params)
                total = term if total is None else total + term
        return total
    if callable(prim.jvp):
        return prim.jvp(primals, tangents, params)
    if prim.elementwise and prim.rules and _one_field(tangents, out):
        return _diagonal(prim, primals, tangents, params, out)
    moving = tuple([t is not None for t in tangents])
    rule = None if kept is None else kept.get(moving)
    if rule is None:
        rule = transposed(prim, primals, moving, params)
    if kept is not None:
        kept[moving] = rule
    return rule(tangents)


def _one_field(tangents: tuple, out: Tensor) -> bool:
    """Whether the tangents and the result are all real, or all complex (as of abs they are not)."""
    return all(t is None or t.dtype.is_complex == out.dtype.is_complex for t in tangents)


def _dense(primal: Tensor | int, tangent: Tensor | None) -> Any:
    if tangent is not None or not isinstance(primal, Tensor):
        return primal if tangent is None else tangent
    moves = primal.dtype.is_floating_point or primal.dtype.is_complex
    return Algebra.zeros_like(primal) if moves else primal


class _NodeView:
    """What a vjp rule asks of its node, for a rule that is run by itself."""

    def __init__(self, primals: tuple, params: dict) -> None:
        self.primals, self.params = primals, params

    def input_shape(self, i: int) -> tuple:
        return self.primals[i].meta()[0]


def _diagonal(prim: Primitive, primals: tuple, tangents: tuple, params: dict, out: Tensor) -> Any:
    """An elementwise primitive: the vjp rule of each argument, applied to its tangent."""
    view = _NodeView(primals, params)
    shape = tuple(out.meta()[0])
    total = None
    for i, t in enumerate(tangents):
        if t is None or i >= len(prim.rules):
            continue
        if tuple(t.meta()[0]) != shape:
            t = expand(t, shape=shape)
        # A rule applies the adjoint; the derivative itself is its conjugate.
        twisted = t.dtype.is_complex
        term = prim.rules[i](conj(t) if twisted else t, out, primals, view)
        if term is not None:
            term = conj(term) if twisted else term
            total = term if total is None else total + term
    return total


def transposed(
    prim: Primitive, primals: tuple, moving: tuple, params: dict
) -> Callable[[tuple], Any]:
    """The function of tangents (there where ``moving`` says) d/dg <vjp(g), tangents>: the transpose
    of the vjp at ``primals``."""
    level = _highest(primals)
    with enable_grad():
        leaves = [_leaf(p, level) if m else p for p, m in zip(primals, moving, strict=True)]
        wanted = [x for x, m in zip(leaves, moving, strict=True) if m]
        result = prim(*leaves, **params)
        several = isinstance(result, tuple)
        outs = result if several else (result,)
        live = [o for o in outs if o.requires_grad]
        if not live:
            return lambda tangents: None
        seeds = [Algebra.zeros_like(o).requires_grad_() for o in live]
        leave_private((*wanted, *seeds))
        rows = grad(live, wanted, seeds, create_graph=True, allow_unused=True)
    places = [next((i for i, x in enumerate(live) if x is o), None) for o in outs]

    def run(tangents: tuple) -> Any:
        given = [t for t in tangents if t is not None]
        pairs = zip(rows, given, strict=True)
        used = [(r, t) for r, t in pairs if r is not None and r.requires_grad]
        if not used:
            return None
        create = thread.grad_enabled and followed((*primals, *tangents), ())
        with enable_grad():
            moved = grad(
                [r for r, _ in used], seeds, [t for _, t in used], create_graph=create,
                retain_graph=True, materialize_grads=True,
            )  # fmt: skip
        return tuple(None if i is None else moved[i] for i in places) if several else moved[0]

    return run


def _highest(values: tuple) -> Any:
    """The highest level among ``values``, where the tape of an operation on them is."""
    levels = [v.interp for v in values if isinstance(v, Tracer)]
    return max(levels, key=lambda i: i.level) if levels else None


def _leaf(value: Tensor, level: Level | None) -> Tensor:
    """An alias of ``value`` at ``level`` that the tape follows, connected to what made it."""
    if level is not None and not level.owns(value):
        value = level.lift(value)
    if value.requires_grad:
        return reshape(value, shape=tuple(value.meta()[0]))
    alias = value.alias() if isinstance(value, Tracer) else value.detach()
    return alias.requires_grad_()


def jvp(
    func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False
) -> tuple:
    """(``func(*primals)``, its derivative in the direction ``tangents``)."""
    return pushed(func, primals, tangents, strict=strict, has_aux=has_aux)


def pushed(
    func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False,
    has_aux: bool = False, own: Sequence = (),
) -> tuple:  # fmt: skip
    """``jvp`` of a function that may also write to the tensors ``own``."""
    leaves, rebuild, given = _given(primals, tangents)
    level = Forward()
    with level.running():
        inputs = [level.wrap(p, t) for p, t in zip(leaves, given, strict=True)]
        with Inside("jvp", (*leaves, *own)).running():
            result = settle(func(*rebuild(inputs)))
        write_back(level, leaves, inputs, own)
        settle(result)
    aux = None
    if has_aux:
        result, aux = split_aux(_JVP, result)
        aux = tree.map(lambda x: _primal(level, x), aux)
    outs, unflatten = output_leaves(_JVP, result)
    if strict:
        _check_dependent(level, outs)
    pairs = [_leave(level, o) for o in outs]
    answer = (unflatten([p for p, _ in pairs]), unflatten([t for _, t in pairs]))
    return (*answer, aux) if has_aux else answer


def write_back(level: Forward, leaves: list, inputs: list, own: Sequence = ()) -> None:
    """Write over arguments what was written over the values that stood for them: over ``leaves``,
    and over those of ``own`` that became values by it."""
    for p, tracer in zip(leaves, inputs, strict=True):
        if is_written(tracer, p):
            inplace.copy_(p, tracer.inner)
            renew(tracer, level.wrap(p, tracer.tangent))
    cells = {memory(t) for t in own if isinstance(t, Tensor)}
    for cell, before, value in level.joined:
        if cell in cells:
            cell.joined = False
            value.graph_node()
            inplace.copy_(before, value.inner)


def _given(primals: Any, tangents: Any) -> tuple[list, Callable, list]:
    """The leaves of the primals, how these are put together, and the leaves of the tangents."""
    if not isinstance(primals, tuple):
        raise AutogradError(
            f"{_JVP}: Expected primals to be a tuple, one entry per argument of f; got "
            f"{type(primals).__name__}"
        )
    if tree.structure(primals) != tree.structure(tangents):
        raise AutogradError(
            f"{_JVP}: Expected primals and tangents to have the same python structure. Got primals "
            f"with structure {tree.structure(primals)} and tangents with structure "
            f"{tree.structure(tangents)}"
        )
    leaves, rebuild = tree.flatten(primals)
    given = tree.leaves(tangents)  # (a number goes along with what has no dimensions)
    leaves = [p if _has_dims(t) else as_tensor(p) for p, t in zip(leaves, given, strict=True)]
    given = [t if _has_dims(p) else as_tensor(t, p) for t, p in zip(given, leaves, strict=True)]
    if not leaves:
        raise AutogradError(f"{_JVP}: Expected at least one Tensor among the primals")
    for i, (p, t) in enumerate(zip(leaves, given, strict=True)):
        for name, x in (("primals", p), ("tangents", t)):
            if not isinstance(x, Tensor):
                raise AutogradError(
                    f"{_JVP}: {name} must only contain Tensors, got unsupported type {type(x)}"
                )
        if tuple(p.shape) != tuple(t.shape):
            raise ShapeError(
                f"{_JVP}: tangent {i} has shape {list(t.shape)}, its primal {list(p.shape)}"
            )
    return leaves, rebuild, given


def _has_dims(x: Any) -> bool:
    return isinstance(x, Tensor) and x.ndim > 0


def _check_dependent(level: Forward, outs: list) -> None:
    for i, out in enumerate(outs):
        if not level.owns(out) or out.tangent is None:
            raise AutogradError(
                f"{_JVP}: output {i} of f is independent of the inputs. This is not allowed when "
                "strict=True"
            )


def _primal(level: Forward, x: Tensor) -> Any:
    return x.inner if level.owns(x) else x


def _leave(level: Forward, out: Tensor) -> tuple[Tensor, Tensor]:
    primal = _primal(level, out)
    tangent = out.tangent if isinstance(out, DualTracer) and level.owns(out) else None
    return primal, left(primal, tangent)


def left(primal: Tensor, tangent: Tensor | None) -> Tensor:
    """The tangent of a result: zeros where it depends on nothing that moves."""
    if tangent is not None:
        return tangent
    traced = isinstance(primal, Tracer)
    return Algebra.zeros_like(primal) if traced else create.zeros_like(primal)
