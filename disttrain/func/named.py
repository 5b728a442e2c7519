"""Collectives over named axes: what each is, its derivative, and where its axis is found.

A named axis is a level (a ``vmap`` with ``axis_name=``, a ``spread``) whose examples exchange
values. A collective is sent down to that level, through those above it, which see a linear map of
one value; there the level's own table of collectives says what it does. Each works along dimension
0, where it takes or makes one. Adjoints are those of the whole map over all examples:

    psum <-> psum        all_gather <-> psum_scatter        all_to_all, ppermute <-> their inverses

Where an axis is ``varying``, values know whether they differ along it, and derivatives inside keep
it: what is one for all and meets what differs is first made to vary, whose adjoint is the sum.

    psum <-> vary        all_gather_same <-> own_part
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ..context import thread
from ..core.gate import Primitive, Tracer, gate
from ..core.tensor import Tensor
from ..errors import UnboundAxis
from ..ops.declare import declare_apart


class Named(Primitive):
    """A collective over the level that its parameter ``axis`` is."""

    def __call__(self, *args: Any, **params: Any) -> Any:
        axis, x = params["axis"], args[0]
        if axis.over:  # what was staged inside of it is run inside of another one of its name
            axis = axis_of(self.name, axis.axis_name)
            params = {**params, "axis": axis}
        if not isinstance(x, Tracer) or x.interp.level < axis.level:
            x = axis.lift(x)
        if self is Vary and varies(x, axis):
            return x
        return gate(self, (x,), params)


def _named(name: str, rule: Callable, takes: bool = False, gives: bool = False) -> Named:
    """Declare one. ``takes``: dimension 0 is the axis; ``gives``: so it is in the result."""

    def batched(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        x, at = args[0], dims[0]
        if takes:  # its dimension 0 stays in front
            x, at = x.movedim(at, 1), 1
        return prim(x, **params), at - takes + gives

    prim = declare_apart(name, _unreached, "x", {"x": rule}, kind=Named)

    def shape(x: Any, axis: Any, **params: Any) -> tuple:
        return (*((axis.size,) if gives else ()), *x.shape[takes:]), x.dtype

    prim.batch, prim.shape, prim.kinds = batched, shape, False
    return prim


def _unreached(*args: Any, **params: Any) -> Any:
    raise AssertionError("a collective over a named axis belongs to the level of its axis")


def _sum_rule(g: Any, axis: Any) -> Any:
    return Vary(g, axis=axis) if axis.varying else Sum(g, axis=axis)


Sum: Named = _named("psum", _sum_rule)
Vary: Named = _named("pvary", lambda g, axis: Sum(g, axis=axis) if axis.varying else g)
Gather: Named = _named("all_gather", lambda g, axis: Scatter(g, axis=axis), gives=True)
Scatter: Named = _named("psum_scatter", lambda g, axis: Gather(g, axis=axis), takes=True)
GatherSame: Named = _named("all_gather_same", lambda g, axis: OwnPart(g, axis=axis), gives=True)
OwnPart: Named = _named("own_part", lambda g, axis: GatherSame(g, axis=axis), takes=True)
Exchange: Named = _named(
    "all_to_all", lambda g, axis: Exchange(g, axis=axis), takes=True, gives=True
)
Permute: Named = _named(
    "ppermute",
    lambda g, axis, perm: Permute(g, axis=axis, perm=tuple([(b, a) for a, b in perm])),
)


def bound() -> tuple:
    """What the named axes here are: their names, sizes, and whether they are varying. What was
    staged where they are others is not for here."""
    return tuple([(name, axis.size, axis.varying) for name, axis in thread.axes])


def axis_of(where: str, name: Hashable) -> Any:
    """The level that ``name`` is bound to: the innermost one of that name."""
    for bound, level in reversed(thread.axes):
        if bound == name:
            return level
    known = ", ".join(repr(bound) for bound, _ in thread.axes) or "none"
    raise UnboundAxis(
        f"{where}: unbound axis name: {name} (bound here: {known}); call it inside of "
        f"vmap(..., axis_name={name!r}) or spread(..., axis_name={name!r})"
    )


def varies(value: Any, axis: Any) -> bool:
    """Whether ``value`` may differ along ``axis``."""
    while isinstance(value, Tracer):
        if value.interp is axis:
            return axis.differs(value)
        value = value.inner
    return False


def is_staged(value: Any, axis: Any) -> bool:
    """Whether ``value`` is one of a function that is staged inside of the axis: it varies as what
    that function will be given."""
    while isinstance(value, Tracer) and value.interp.level > axis.level:
        if getattr(value.interp, "staging", False):
            return True
        value = value.inner
    return False


def tracked() -> bool:
    """Whether values here know along which axes they vary: what is staged would not."""
    return any(axis.varying for _, axis in thread.axes)


def uses_axes(steps: Any) -> bool:
    """Whether any of the steps of a staged function is a collective over a named axis."""
    inner = [getattr(getattr(step.prim, "body", None), "steps", ()) for step in steps]
    return any(isinstance(step.prim, Named) for step in steps) or any(map(uses_axes, inner))


def mixed(args: tuple) -> tuple:
    """``args`` of an operation, those that the tape follows made to vary where another one does."""
    for _, axis in thread.axes:
        if axis.varying:
            differ = [varies(a, axis) for a in args]
            if any(differ):
                args = tuple(
                    Vary(a, axis=axis) if not d and _followed(a) else a
                    for a, d in zip(args, differ, strict=True)
                )
    return args


def _followed(a: Any) -> bool:
    return isinstance(a, Tensor) and a.graph_node() is not None
