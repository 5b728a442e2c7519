"""``grad``, ``vjp``, ``jvp``, ``linearize`` with JAX's conventions, over ``dt.func``.

A function of pytrees of Arrays becomes one of a list of Tensors (``Flat``), which the transform of
``dt.func`` takes; so they compose in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import disttrain as dt

from ... import func
from ...core.tensor import Tensor
from ...ops.primitives.elementwise import conj
from . import tree
from .array import Array, wrap
from .batches import vmap
from .errors import short
from .flat import (
    Flat,
    as_array,
    check_callable,
    float0,
    is_float0,
    moves,
    name_of,
    named,
    no_tangent,
)
from .tracing import aval_text

_registry = tree.default_registry


# --- reverse ------------------------------------------------------------------------------------
class Reverse:
    """One ``vjp`` of ``fun``: its result, and how cotangents are pulled back."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.places = [i for i, a in enumerate(flat.given) if moves(a)]
        aux: list = []

        def of(*moving: Tensor) -> Any:
            full = list(flat.tensors)
            for i, t in zip(self.places, moving, strict=True):
                full[i] = t
            outs, extra = flat.with_aux(flat(*full))
            return (outs, extra) if extra else outs

        def with_extra(*moving: Tensor) -> Any:
            found = of(*moving)
            return found if isinstance(found, tuple) else (found, [])

        moving = [flat.tensors[i] for i in self.places]
        self.pull: Callable | None = None
        if moving:
            outs, extra, self.pull = _pulled(with_extra, moving)
        else:
            outs, extra = with_extra()
        self.outs, aux = outs, extra
        self.result = flat.tree(outs)
        self.aux = flat.aux_of(aux) if flat.has_aux else None

    def __call__(self, cotangents: Sequence[Any]) -> list:
        """The cotangents of all arguments' leaves; ``cotangents`` are Tensors (None: zero)."""
        given = self.flat.given
        found: list = [no_tangent(a) for a in given]
        rows: Sequence = ()
        if self.pull is not None:
            rows = self.pull(cotangents)
        for i, row in zip(self.places, rows, strict=True):
            found[i] = wrap(row, given[i].weak_type)
        return found


def _conj(t: Tensor) -> Tensor:
    return conj(t) if t.dtype.is_complex else t


def _pulled(of: Callable, moving: list) -> tuple[list, list, Callable]:
    """Outputs, aux tensors, and the function from cotangents to those of ``moving``. (JAX's pulls
    back without conjugation, which the tape does.)"""
    none = dt.zeros(())

    def padded(*tensors: Tensor) -> Any:
        outs, extra = of(*tensors)
        return (outs or [none]), extra

    outs, pull, extra = func.vjp(padded, *moving, has_aux=True)
    empty = len(outs) == 1 and outs[0] is none

    def pull_back(cotangents: Sequence[Any]) -> list:
        full = [
            dt.zeros(tuple(o.meta()[0]), dtype=o.dtype) if c is None else _conj(c)
            for o, c in zip(outs, cotangents or [None] * len(outs), strict=True)
        ]
        return [_conj(r) for r in pull(full)]

    return ([] if empty else outs), extra, pull_back


def vjp(fun: Callable, *primals: Any, has_aux: bool = False, reduce_axes: Sequence = ()) -> Any:
    """(``fun(*primals)``, a function from a cotangent to the primals' cotangents[, aux])."""
    check_callable(fun)
    flat = Flat(fun, primals, has_aux=has_aux)
    reverse = Reverse(flat)
    form = flat.of.parts[0]

    def vjp_fun(*cotangents: Any) -> tuple:
        if len(cotangents) != 1:
            raise TypeError(
                f"The function returned by `jax.vjp` applied to {name_of(fun)} was called with "
                f"{len(cotangents)} arguments, but functions returned by `jax.vjp` must be called "
                "with a single argument corresponding to the single value returned by the function "
                "being differentiated (even if that returned value is a tuple or other container)."
            )
        found = reverse(_checked_cotangents(fun, flat, reverse.outs, cotangents[0]))
        return form.build(iter(found))

    answer = (reverse.result, tree.Partial(vjp_fun))
    return (*answer, reverse.aux) if has_aux else answer


def _checked_cotangents(fun: Callable, flat: Flat, outs: list, given: Any) -> list:
    leaves, form = _registry.flatten(given)
    if form != flat.form:
        raise ValueError(
            "unexpected tree structure.\n\nThe argument to a VJP function returned by `jax.vjp` "
            f"must match the pytree structure of the differentiated function "
            f"{name_of(fun)}.\n\nBut "
            f"the tree structures differ: {form} given, "
            f"{flat.form} needed"
        )
    found: list = []
    for out, weak, leaf in zip(outs, flat.weak, leaves, strict=True):
        like = wrap(out, weak)
        if not moves(like):
            found.append(None)
            continue
        g = as_array(leaf)
        if g.shape != like.shape or g.dtype != like.dtype:
            raise ValueError(
                "unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got "
                f"{short(g)}, but expected {short(like)} because the corresponding output of the "
                f"differentiated function had JAX type {short(like)}"
            )
        found.append(g._value)
    return found


def _numbers(argnums: Any) -> tuple[int, ...]:
    if isinstance(argnums, (tuple, list)):
        if not argnums:
            raise ValueError("max() arg is an empty sequence")
        return tuple(int(n.__index__()) for n in argnums)
    if not hasattr(argnums, "__index__"):
        raise TypeError(f"'{type(argnums).__name__}' object cannot be interpreted as an integer")
    return (argnums.__index__(),)


def picked(fun: Callable, argnums: Any, args: tuple, kwargs: dict) -> tuple[tuple, Callable]:
    """The arguments ``argnums``, and ``fun`` as a function of those alone."""
    numbers = _numbers(argnums)
    needed = max(max(numbers) + 1, -min(numbers))
    if needed > len(args):
        raise TypeError(
            f"differentiating with respect to argnums={argnums} requires at least {needed} "
            f"positional arguments to be passed by the caller, but got only {len(args)} positional "
            "arguments."
        )
    places = [n % len(args) for n in numbers]

    def of(*values: Any) -> Any:
        full = list(args)
        for n, value in zip(places, values, strict=True):
            full[n] = value
        return fun(*full, **kwargs)

    return tuple(args[n] for n in places), named(of, fun)


def check_input(where: str, array: Array, holomorphic: bool, allow_int: bool) -> None:
    """Raise ``TypeError`` unless the argument can be differentiated."""
    kind = array.dtype
    if holomorphic and kind.kind != "c":
        raise TypeError(
            f"{where} with holomorphic=True requires inputs with complex dtype, but got "
            f"{kind.name}."
        )
    if kind.kind in "biu" and not allow_int:
        raise TypeError(
            f"{where} requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
            f"np.inexact), but got {kind.name}. If you want to use Boolean- or integer-valued "
            "inputs, use vjp or set allow_int to True."
        )


def check_output(where: str, array: Array, holomorphic: bool) -> None:
    """Raise ``TypeError`` unless the result can be differentiated."""
    kind = array.dtype
    if holomorphic and kind.kind != "c":
        raise TypeError(
            f"{where} with holomorphic=True requires outputs with complex dtype, but got "
            f"{kind.name}."
        )
    if not holomorphic and kind.kind == "c":
        raise TypeError(
            f"{where} requires real-valued outputs (output dtype that is a sub-dtype of "
            f"np.floating), but got {kind.name}. For holomorphic differentiation, pass "
            "holomorphic=True. For differentiation of non-holomorphic functions involving complex "
            f"outputs, use jax.vjp directly."
        )
    if kind.kind in "biu":
        raise TypeError(
            f"{where} requires real-valued outputs (output dtype that is a sub-dtype of "
            f"np.floating), but got {kind.name}. For differentiation of functions with integer "
            "outputs, use jax.vjp directly."
        )


def value_and_grad(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence = (),
    *, _where: str = "value_and_grad",
) -> Callable:  # fmt: skip
    """``fun``'s value (a scalar) and gradient; with ``has_aux`` ((value, aux), gradient)."""
    check_callable(fun)

    def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
        chosen, of = picked(fun, argnums, args, kwargs)
        flat = Flat(of, chosen, has_aux=has_aux)
        for a in flat.given:
            check_input(_where, a, holomorphic, allow_int)
        reverse = Reverse(flat)
        out = _scalar(_where, reverse.result, holomorphic)
        found = reverse([dt.ones((), dtype=out._value.dtype)])
        grads = flat.of.parts[0].build(iter(found))
        grads = grads[0] if not isinstance(argnums, (tuple, list)) else grads
        return ((out, reverse.aux) if has_aux else out), grads

    return named(value_and_grad_f, fun)


def _scalar(where: str, result: Any, holomorphic: bool) -> Array:
    if not isinstance(result, Array):
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {result}.")
    if result.shape:
        raise TypeError(
            "Gradient only defined for scalar-output functions. Output had shape: "
            f"{tuple(result.shape)}."
        )
    check_output(where, result, holomorphic)
    return result


def grad(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence = (),
) -> Callable:  # fmt: skip
    """The gradient of ``fun``, whose result is a scalar; with ``has_aux`` (gradient, aux)."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, _where="grad")

    def grad_f(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return named(grad_f, fun)


# --- forward ------------------------------------------------------------------------------------
def jvp(fun: Callable, primals: Any, tangents: Any, has_aux: bool = False) -> tuple:
    """(``fun(*primals)``, its derivative along ``tangents``[, aux])."""
    check_callable(fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            "primal and tangent arguments to jax.jvp must be tuples or lists; found "
            f"{type(primals).__name__} and {type(tangents).__name__}."
        )
    leaves, form = _registry.flatten(tangents)
    of = _registry.flatten(primals)[1]
    if form != of:
        raise TypeError(
            "primal and tangent arguments to jax.jvp must have the same tree structure; primals "
            f"have tree structure {of} whereas tangents have tree structure "
            f"{form}."
        )
    flat = Flat(fun, tuple(primals), has_aux=has_aux)
    given = [_tangent(p, t) for p, t in zip(flat.given, leaves, strict=True)]
    places = [i for i, a in enumerate(flat.given) if moves(a)]
    outs, moved, extra = _pushed(flat, places, [given[i] for i in places])
    answer = flat.tree(outs), _moved_tree(flat, outs, moved)
    return (*answer, flat.aux_of(extra)) if has_aux else answer


def _tangent(primal: Array, tangent: Any) -> Any:
    expected = primal.dtype if moves(primal) else float0
    t = None if is_float0(tangent) else as_array(tangent)
    kind = float0 if t is None else t.dtype
    if kind != expected:
        name = getattr(expected, "name", expected) if expected != float0 else "[('float0', 'V')]"
        raise TypeError(
            "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, "
            "or in case "
            "of int/bool primal dtype the tangent dtype must be float0."
            f"Got primal dtype {primal.dtype.name} and so expected tangent dtype {name}, but got "
            f"tangent dtype {'float0' if t is None else kind.name} instead."
        )
    shape = tuple(np.shape(tangent)) if t is None else t.shape
    if shape != primal.shape:
        raise ValueError(
            "jvp called with different primal and tangent shapes;Got primal shape "
            f"{primal.shape} and tangent shape as {shape}"
        )
    return None if t is None else t._value


def _of_moving(flat: Flat, places: list[int], tensors: Sequence[Tensor]) -> list[Tensor]:
    full = list(flat.tensors)
    for i, t in zip(places, tensors, strict=True):
        full[i] = t
    return flat(*full)


def _pushed(flat: Flat, places: list[int], tangents: list) -> tuple[list, list, list]:
    if not places:
        outs, extra = flat.with_aux(flat(*flat.tensors))
        return outs, [_zeros(o) for o in outs], extra
    none = dt.zeros(())

    def of(*moving: Tensor) -> Any:
        outs, extra = flat.with_aux(_of_moving(flat, places, moving))
        return (outs or [none]), extra

    primals = tuple(flat.tensors[i] for i in places)
    outs, moved, extra = func.jvp(of, primals, tuple(tangents), has_aux=True)
    return (outs, moved, extra) if flat.form.num_leaves else ([], [], extra)


def _zeros(like: Tensor) -> Tensor:
    return dt.zeros(tuple(like.meta()[0]), dtype=like.dtype)


def _moved_tree(flat: Flat, outs: list, moved: Sequence[Any]) -> Any:
    """The tree of tangents of results; nothing for integers."""
    found = []
    for o, t, weak in zip(outs, moved, flat.weak, strict=True):
        like = wrap(o, weak)
        found.append(wrap(t, weak) if moves(like) else no_tangent(like))
    return flat.form.build(iter(found))


def linearize(fun: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(``fun(*primals)``, the function of tangents that gives its derivative there[, aux])."""
    check_callable(fun)
    flat = Flat(fun, primals, has_aux=has_aux)
    places = [i for i, a in enumerate(flat.given) if moves(a)]
    count = [0]

    def of(*moving: Tensor) -> list:
        outs, extra = flat.with_aux(_of_moving(flat, places, moving))
        count[0] = len(outs)
        return [*outs, *extra]

    if places:
        both, push = func.linearize(of, *[flat.tensors[i] for i in places])
    else:
        both = of()
    outs, extra = both[: count[0]], both[count[0] :]
    form = flat.of.parts[0]

    def lin(*tangents: Any) -> Any:
        leaves, given = _registry.flatten(tangents)
        if given != form:
            raise TypeError(f"expected {form}, got {given}")
        pairs = zip(flat.given, leaves, strict=True)
        checked = [_linear_tangent(p, t) for p, t in pairs]
        moved = push(*[checked[i] for i in places])[: count[0]] if places else map(_zeros, outs)
        return _moved_tree(flat, outs, list(moved))

    answer = flat.tree(outs), tree.Partial(lin)
    return (*answer, flat.aux_of(extra)) if has_aux else answer


def _linear_tangent(primal: Array, tangent: Any) -> Any:
    if is_float0(tangent) and not moves(primal):
        return None
    t = as_array(tangent)
    if t.shape != primal.shape or t.dtype != primal.dtype or not moves(primal):
        needed = aval_text(primal) if moves(primal) else "float0[]"
        raise ValueError(
            "linearized function called on tangent values inconsistent with the original primal "
            f"values:\nGot tangent aval {aval_text(t)} for primal aval {aval_text(primal)} but "
            f"expected {needed}."
        )
    return t._value


__all__ = ["float0", "grad", "jvp", "linearize", "value_and_grad", "vjp", "vmap"]
