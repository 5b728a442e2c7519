"""``jacfwd``, ``jacrev``, ``hessian``: ``vmap`` over ``jvp`` and ``vjp`` with all unit vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import disttrain as dt

from . import tree
from .array import Array, wrap
from .batches import vmap
from .flat import Flat, as_array, check_callable, float0, is_float0, moves, named
from .transforms import Reverse, check_input, check_output, jvp, picked

_registry = tree.default_registry


def _basis(leaves: Sequence[Array]) -> list[Array]:
    """All unit vectors of the leaves together: per leaf [count, *shape]."""
    sizes = [math.prod(a.shape) for a in leaves]
    total, at, found = sum(sizes), 0, []
    for a, n in zip(leaves, sizes, strict=True):
        rows = dt.eye(total, dtype=a._value.dtype)[:, at : at + n]
        found.append(wrap(rows.reshape((total, *a.shape)), a.weak_type))
        at += n
    return found


def _parts(rows: Array, leaves: Sequence[Array], axis_last: bool) -> list[Array]:
    """[total, *shape] cut to one array per leaf: [*shape, *leaf] or [*leaf, *shape]."""
    found, at = [], 0
    for a in leaves:
        n = math.prod(a.shape)
        piece = rows._value[at : at + n]
        if axis_last:
            piece = dt.movedim(piece, 0, -1).reshape((*rows.shape[1:], *a.shape))
        else:
            piece = piece.reshape((*a.shape, *rows.shape[1:]))
        found.append(wrap(piece, rows.weak_type))
        at += n
    return found


def jacfwd(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:  # fmt: skip
    """The Jacobian, column by column: results' trees of arguments' trees of [*out, *in]."""
    check_callable(fun)

    def jacfun(*args: Any, **kwargs: Any) -> Any:
        chosen, of = picked(fun, argnums, args, kwargs)
        leaves, form = _registry.flatten(chosen)
        given = [as_array(x) for x in leaves]
        for a in given:
            _check_forward(a, holomorphic)

        def push(*tangents: Array) -> Any:
            _, moved, *aux = jvp(of, chosen, form.build(iter(tangents)), has_aux=has_aux)
            return (moved, *aux)

        columns, *aux = vmap(push, out_axes=(-1, 0) if has_aux else (-1,))(*_basis(given))
        aux = [tree.tree_map(lambda a: wrap(as_array(a)._value[0], a.weak_type), x) for x in aux]
        for y in _registry.flatten(columns)[0]:
            _check_forward_output(as_array(y), holomorphic)
        out, out_form = _registry.flatten(columns)
        one = form.parts[0] if not isinstance(argnums, (tuple, list)) else form

        def cut(column: Array) -> Any:
            moved = wrap(dt.movedim(column._value, -1, 0), column.weak_type)
            return one.build(iter(_parts(moved, given, axis_last=True)))

        answer = out_form.build(iter([cut(as_array(c)) for c in out]))
        return (answer, aux[0]) if has_aux else answer

    return named(jacfun, fun)


def _check_forward(array: Array, holomorphic: bool) -> None:
    kind = array.dtype
    if holomorphic and kind.kind != "c":
        raise TypeError(
            f"jacfwd with holomorphic=True requires inputs with complex dtype, but got {kind.name}."
        )
    if not holomorphic and kind.kind not in "fV":
        raise TypeError(
            "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), "
            f"but got {kind.name}. For holomorphic differentiation, pass holomorphic=True. For "
            "differentiation of non-holomorphic functions involving complex inputs or integer "
            "inputs, use jax.jvp directly."
        )


def _check_forward_output(array: Array, holomorphic: bool) -> None:
    if holomorphic and array.dtype.kind != "c":
        raise TypeError(
            "jacfwd with holomorphic=True requires outputs with complex dtype, but got "
            f"{array.dtype.name}."
        )


def jacrev(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False,
) -> Callable:  # fmt: skip
    """The Jacobian, row by row: results' trees of arguments' trees of [*out, *in]."""
    check_callable(fun)

    def jacfun(*args: Any, **kwargs: Any) -> Any:
        chosen, of = picked(fun, argnums, args, kwargs)
        flat = Flat(of, chosen, has_aux=has_aux)
        for a in flat.given:
            check_input("jacrev", a, holomorphic, allow_int)
        reverse = Reverse(flat)
        outs = [wrap(o, w) for o, w in zip(reverse.outs, flat.weak, strict=True)]
        for y in outs:
            check_output("jacrev", y, holomorphic)

        def pull(*cotangents: Array) -> list:
            return [x for x in reverse([c._value for c in cotangents]) if not is_float0(x)]

        rows = iter(vmap(pull)(*_basis(outs)) if outs else ())
        columns = [
            _parts(next(rows), outs, axis_last=False)
            if moves(a)
            else [np.zeros((*o.shape, *a.shape), float0) for o in outs]
            for a in flat.given
        ]
        form = flat.of.parts[0]
        one = form.parts[0] if not isinstance(argnums, (tuple, list)) else form
        answers = [one.build(iter([c[i] for c in columns])) for i in range(len(outs))]
        answer = flat.form.build(iter(answers))
        return (answer, reverse.aux) if has_aux else answer

    return named(jacfun, fun)


def hessian(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:  # fmt: skip
    """Second derivatives: forward over reverse."""
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


__all__ = ["hessian", "jacfwd", "jacrev"]
