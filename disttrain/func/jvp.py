"""jvp: forward-mode derivatives. Every value carries a tangent, which each operation moves along.

The rule of a primitive is its own, the vjp's where the Jacobian is diagonal, or the vjp transposed
(it is linear in the cotangent, so differentiating it with respect to that gives the jvp).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import tree
from ..context import thread
from ..core.backward.autograd import grad
from ..core.gate import Primitive, Tracer
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor
from ..core.writes import Inside
from ..errors import AutogradError, ShapeError
from ..ops.functions.creation import create
from ..ops.primitives.elementwise import conj
from ..ops.primitives.views import expand, reshape
from .functions import push_function
from .levels import Level, check, followed, leave_private, settle
from .reverse import output_leaves, split_aux

_new = object.__new__
_JVP = "jvp(f, primals, tangents)"


class DualTracer(Tracer):
    """A value ``inner`` with its ``tangent`` (None: zero)."""

    tangent: Tensor | None

    def meta(self) -> tuple:
        return self.inner.meta()


class Forward(Level):
    """One active jvp."""

    name = "jvp"
    joins = True

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
        out = prim(*primals, **params)
        if all(t is None for t in tangents) or not prim.differentiable:
            return self._wrapped(out, None)
        return self._wrapped(out, push(prim, primals, tangents, params, out))

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


def push(prim: Primitive, primals: tuple, tangents: tuple, params: dict, out: Any) -> Any:
    """The tangent of ``prim``'s result."""
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
    return _transposed(prim, primals, tangents, params)


def _one_field(tangents: tuple, out: Tensor) -> bool:
    """Whether the tangents and the result are all real, or all complex (as of abs they are not)."""
    return all(t is None or t.dtype.is_complex == out.dtype.is_complex for t in tangents)


def _dense(primal: Tensor | int, tangent: Tensor | None) -> Any:
    if tangent is not None or not isinstance(primal, Tensor):
        return primal if tangent is None else tangent
    return primal * 0 if primal.dtype.is_floating_point or primal.dtype.is_complex else primal


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


def _transposed(prim: Primitive, primals: tuple, tangents: tuple, params: dict) -> Any:
    """d/dg <vjp(g), tangent>: the transpose of the vjp."""
    level = _highest(primals)
    create = thread.grad_enabled and followed((*primals, *tangents), ())
    with enable_grad():
        leaves = [
            p if t is None else _leaf(p, level) for p, t in zip(primals, tangents, strict=True)
        ]
        wanted = [x for x, t in zip(leaves, tangents, strict=True) if t is not None]
        given = [t for t in tangents if t is not None]
        result = prim(*leaves, **params)
        outs = result if isinstance(result, tuple) else (result,)
        live = [o for o in outs if o.requires_grad]
        if not live:
            return None
        seeds = [(o.detach() * 0).requires_grad_() for o in live]
        leave_private((*wanted, *seeds))
        rows = grad(live, wanted, seeds, create_graph=True, allow_unused=True)
        used = [
            (r, t) for r, t in zip(rows, given, strict=True) if r is not None and r.requires_grad
        ]
        if not used:
            return None
        moved = grad(
            [r for r, _ in used], seeds, [t for _, t in used], create_graph=create,
            materialize_grads=True,
        )  # fmt: skip
    by_id = {id(o): m for o, m in zip(live, moved, strict=True)}
    return tuple(by_id.get(id(o)) for o in outs) if isinstance(result, tuple) else moved[0]


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
    leaves, rebuild, given = _given(primals, tangents)
    level = Forward()
    with level.running(), Inside("jvp", leaves).running():
        inputs = [level.wrap(p, t) for p, t in zip(leaves, given, strict=True)]
        result = settle(func(*rebuild(inputs)))
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
    given = tree.leaves(tangents)
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
    if tangent is None:
        tangent = primal * 0 if isinstance(primal, Tracer) else create.zeros_like(primal)
    return primal, tangent


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """(``func(*primals)``, the function of tangents that gives its derivative there).

    The derivative is taken anew for each tangent: nothing is kept but the primals.
    """
    leaves, _ = tree.flatten(primals)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise AttributeError(
                f"linearize: the primals must be tensors; {type(leaf).__name__} given"
            )

    def push_forward(*tangents: Any) -> Any:
        given = tree.leaves(tangents)
        if len(given) != len(leaves):
            raise AutogradError(
                f"linearize: Expected the tangents to have the same argspec as the primals; "
                f"{len(given)} given for {len(leaves)}"
            )
        for i, (t, p) in enumerate(zip(given, leaves, strict=True)):
            if t.meta() != p.meta():
                raise AutogradError(
                    f"linearize: tangent {i} is {t.dtype!r}{list(t.shape)}; its primal is "
                    f"{p.dtype!r}{list(p.shape)}"
                )
        return jvp(func, primals, tangents)[1]

    return func(*primals), push_forward
