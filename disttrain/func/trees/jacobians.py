"""``jacfwd``, ``jacrev``, ``hessian``: ``vmap`` over ``jvp`` and ``vjp`` with all unit vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from ...core.types import dtypes
from ...ops.functions.creation import create
from ...ops.functions.views.shapes import movedim
from ..structured_bodies import Aval, Border, aval
from .batches import Batches
from .derivatives import Derivatives, Reverse, check_input, check_output
from .flat import Flat, check_callable, moves, named, picked


class Transforms(Derivatives, Batches):
    """All transforms, for trees with what ``border`` makes of tensors."""

    def jacfwd(
        self, fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
        holomorphic: bool = False,
    ) -> Callable:  # fmt: skip
        """The Jacobian, column by column: results' trees of arguments' trees of [*out, *in]."""
        check_callable(fun)
        take, flatten = self.border.take, self.border.registry.flatten

        def jacfun(*args: Any, **kwargs: Any) -> Any:
            chosen, of = picked(fun, argnums, args, kwargs)
            flat = Flat(self.border, of, chosen)
            for a in flat.avals:
                _check_forward(self.border, a, holomorphic)

            def push(*tangents: Any) -> Any:
                given = flat.args.build(iter(tangents))
                _, moved, *aux = self.jvp(of, chosen, given, has_aux=has_aux)
                return (moved, *aux)

            along = self.vmap(push, out_axes=(-1, 0) if has_aux else (-1,))
            columns, *aux = along(*_basis(self.border, flat.avals))
            out, form = flatten(columns)
            taken = [take(y) for y in out]
            for t, _ in taken:
                _check_forward_output(aval(t), holomorphic)
            one = flat.args.parts[0] if not isinstance(argnums, (tuple, list)) else flat.args
            cut = [
                one.build(iter(_parts(self.border, movedim(t, -1, 0), weak, flat.avals, True)))
                for t, weak in taken
            ]
            answer = form.build(iter(cut))
            return (answer, _first(self.border, aux[0])) if has_aux else answer

        return named(jacfun, fun)

    def jacrev(
        self, fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
        holomorphic: bool = False, allow_int: bool = False,
    ) -> Callable:  # fmt: skip
        """The Jacobian, row by row: results' trees of arguments' trees of [*out, *in]."""
        check_callable(fun)
        border = self.border

        def jacfun(*args: Any, **kwargs: Any) -> Any:
            chosen, of = picked(fun, argnums, args, kwargs)
            flat = Flat(border, of, chosen, has_aux=has_aux)
            for a in flat.avals:
                check_input("jacrev", a.dtype, holomorphic, allow_int)
            reverse = Reverse(flat)
            outs = [aval(o, w) for o, w in zip(reverse.outs, flat.weak, strict=True)]
            for y in outs:
                check_output(border, "jacrev", y.dtype, holomorphic)

            def pull(*cotangents: Any) -> list:
                found = reverse([border.take(c)[0] for c in cotangents])
                return [x for x in found if not border.is_nothing(x)]

            rows = iter(self.vmap(pull)(*_basis(border, outs)) if outs else ())
            columns = [
                _parts(border, *border.take(next(rows)), outs, False)
                if moves(a.dtype)
                else [border.nothing((*o.shape, *a.shape)) for o in outs]
                for a in flat.avals
            ]
            one = flat.args.parts[0] if not isinstance(argnums, (tuple, list)) else flat.args
            answers = [one.build(iter([c[i] for c in columns])) for i in range(len(outs))]
            answer = flat.form.build(iter(answers))
            return (answer, reverse.aux) if has_aux else answer

        return named(jacfun, fun)

    def hessian(
        self, fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
        holomorphic: bool = False,
    ) -> Callable:  # fmt: skip
        """Second derivatives: forward over reverse."""
        inner = self.jacrev(fun, argnums, has_aux, holomorphic)
        return self.jacfwd(inner, argnums, has_aux, holomorphic)


def _first(border: Border, aux: Any) -> Any:
    """What the first example gives."""
    leaves, form = border.registry.flatten(aux)
    return form.build(iter([border.give(t[0], weak) for t, weak in map(border.take, leaves)]))


def _basis(border: Border, leaves: Sequence[Aval]) -> list:
    """All unit vectors of the leaves together: per leaf [count, *shape]."""
    sizes = [math.prod(a.shape) for a in leaves]
    total, at, found = sum(sizes), 0, []
    for a, n in zip(leaves, sizes, strict=True):
        rows = create.eye(total, dtype=dtypes.of(a.dtype))[:, at : at + n]
        found.append(border.give(rows.reshape((total, *a.shape)), a.weak))
        at += n
    return found


def _parts(
    border: Border, rows: Tensor, weak: bool, leaves: Sequence[Aval], axis_last: bool
) -> list:
    """[total, *shape] cut to one array per leaf: [*shape, *leaf] or [*leaf, *shape]."""
    found, at, shape = [], 0, tuple(rows.meta()[0])[1:]
    for a in leaves:
        n = math.prod(a.shape)
        piece = rows[at : at + n]
        if axis_last:
            piece = movedim(piece, 0, -1).reshape((*shape, *a.shape))
        else:
            piece = piece.reshape((*a.shape, *shape))
        found.append(border.give(piece, weak))
        at += n
    return found


def _check_forward(border: Border, a: Aval, holomorphic: bool) -> None:
    kind = a.dtype
    if holomorphic and kind.kind != "c":
        raise TypeError(
            f"jacfwd with holomorphic=True requires inputs with complex dtype, but got {kind.name}."
        )
    if not holomorphic and kind.kind not in "fV":
        raise TypeError(
            "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), "
            f"but got {kind.name}. For holomorphic differentiation, pass holomorphic=True. For "
            "differentiation of non-holomorphic functions involving complex inputs or integer "
            f"inputs, use {border.api}.jvp directly."
        )


def _check_forward_output(a: Aval, holomorphic: bool) -> None:
    if holomorphic and a.dtype.kind != "c":
        raise TypeError(
            "jacfwd with holomorphic=True requires outputs with complex dtype, but got "
            f"{a.dtype.name}."
        )


__all__ = ["Transforms"]
