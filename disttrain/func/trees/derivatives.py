"""``grad``, ``vjp``, ``jvp``, ``linearize`` of functions of trees. Cotangents are pulled back
without conjugation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...ops.functions.creation import create
from ...ops.primitives.elementwise import conj
from ...tree import Partial
from ..jvp import jvp as push_forward
from ..linearize import linearize
from ..reverse import vjp as pull_back_of
from ..structured_bodies import Aval, Border, aval
from .flat import Flat, check_callable, moves, name_of, named, picked, tangent_of


def conjugate(t: Tensor) -> Tensor:
    """The conjugate of a complex tensor; a real one itself."""
    return conj(t) if t.dtype.is_complex else t


def _zeros(like: Tensor) -> Tensor:
    return create.zeros(*like.meta()[0], dtype=like.dtype)


class Reverse:
    """One ``vjp`` of ``flat``: its results, and how cotangents are pulled back."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.pull: Callable | None = None
        moving = flat.moving()
        if moving:
            self.outs, extra, self.pull = _pulled(flat.at, moving)
        else:
            self.outs, extra = flat.at(())
        self.result = flat.tree(self.outs)
        self.aux = flat.aux.tree(extra) if flat.has_aux else None

    def __call__(self, cotangents: Sequence[Any]) -> list:
        """The cotangents of all arguments' leaves; ``cotangents`` are tensors (None: zero)."""
        flat = self.flat
        rows = iter(() if self.pull is None else self.pull(cotangents))
        return [
            tangent_of(flat.border, t, a.weak, next(rows) if moves(a.dtype) else None)
            for t, a in zip(flat.tensors, flat.avals, strict=True)
        ]


def _pulled(of: Callable, moving: list) -> tuple[list, list, Callable]:
    """Outputs, tensors beside them, and the function from cotangents to those of ``moving``."""
    none = create.zeros()

    def padded(*tensors: Tensor) -> Any:
        outs, extra = of(tensors)
        return (outs or [none]), extra

    outs, pull, extra = pull_back_of(padded, *moving, has_aux=True)
    empty = len(outs) == 1 and outs[0] is none

    def pull_back(cotangents: Sequence[Any]) -> list:
        full = [
            _zeros(o) if c is None else conjugate(c)
            for o, c in zip(outs, cotangents or [None] * len(outs), strict=True)
        ]
        return [conjugate(r) for r in pull(full)]

    return ([] if empty else outs), extra, pull_back


class Derivatives:
    """The functions, for trees with what ``border`` makes of tensors."""

    def __init__(self, border: Border) -> None:
        self.border = border

    def vjp(
        self, fun: Callable, *primals: Any, has_aux: bool = False, reduce_axes: Sequence = ()
    ) -> Any:
        """(``fun(*primals)``, a function from a cotangent to the primals' cotangents[, aux])."""
        check_callable(fun)
        flat = Flat(self.border, fun, primals, has_aux=has_aux)
        reversed_ = Reverse(flat)
        api = self.border.api

        def vjp_fun(*cotangents: Any) -> tuple:
            if len(cotangents) != 1:
                raise TypeError(
                    f"The function returned by `{api}.vjp` applied to {name_of(fun)} was called "
                    f"with {len(cotangents)} arguments, but functions returned by `{api}.vjp` must "
                    "be called with a single argument corresponding to the single value returned "
                    "by the function being differentiated (even if that returned value is a tuple "
                    "or other container)."
                )
            found = reversed_(_checked_cotangents(fun, flat, reversed_.outs, cotangents[0]))
            return flat.args.build(iter(found))

        answer = (reversed_.result, Partial(vjp_fun))
        return (*answer, reversed_.aux) if has_aux else answer

    def value_and_grad(
        self, fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
        holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence = (),
    ) -> Callable:  # fmt: skip
        """``fun``'s value (a scalar) and gradient; with ``has_aux`` ((value, aux), gradient)."""
        return self._both("value_and_grad", fun, argnums, has_aux, holomorphic, allow_int)

    def grad(
        self, fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
        holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence = (),
    ) -> Callable:  # fmt: skip
        """The gradient of ``fun``, whose result is a scalar; with ``has_aux`` (gradient, aux)."""
        both = self._both("grad", fun, argnums, has_aux, holomorphic, allow_int)

        def grad_f(*args: Any, **kwargs: Any) -> Any:
            value, grads = both(*args, **kwargs)
            return (grads, value[1]) if has_aux else grads

        return named(grad_f, fun)

    def _both(
        self, where: str, fun: Callable, argnums: Any, has_aux: bool, holomorphic: bool,
        allow_int: bool,
    ) -> Callable:  # fmt: skip
        check_callable(fun)

        def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
            chosen, of = picked(fun, argnums, args, kwargs)
            flat = Flat(self.border, of, chosen, has_aux=has_aux)
            for a in flat.avals:
                check_input(where, a.dtype, holomorphic, allow_int)
            reversed_ = Reverse(flat)
            out = _scalar(self.border, where, reversed_.result, holomorphic)
            found = reversed_([create.ones(dtype=out.dtype)])
            grads = flat.args.build(iter(found))
            grads = grads[0] if not isinstance(argnums, (tuple, list)) else grads
            value = reversed_.result
            return ((value, reversed_.aux) if has_aux else value), grads

        return named(value_and_grad_f, fun)

    def jvp(self, fun: Callable, primals: Any, tangents: Any, has_aux: bool = False) -> tuple:
        """(``fun(*primals)``, its derivative along ``tangents``[, aux])."""
        check_callable(fun)
        border, api = self.border, f"{self.border.api}.jvp"
        if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
            raise TypeError(
                f"primal and tangent arguments to {api} must be tuples or lists; found "
                f"{type(primals).__name__} and {type(tangents).__name__}."
            )
        leaves, form = border.registry.flatten(tangents)
        of = border.registry.flatten(primals)[1]
        if form != of:
            raise TypeError(
                f"primal and tangent arguments to {api} must have the same tree structure; primals "
                f"have tree structure {of} whereas tangents have tree structure {form}."
            )
        flat = Flat(border, fun, tuple(primals), has_aux=has_aux)
        given = [_tangent(border, p, t) for p, t in zip(flat.avals, leaves, strict=True)]
        outs, moved, extra = _pushed(flat, [given[i] for i in flat.places])
        answer = flat.tree(outs), flat.tangents(outs, moved)
        return (*answer, flat.aux.tree(extra)) if has_aux else answer

    def linearize(self, fun: Callable, *primals: Any, has_aux: bool = False) -> tuple:
        """(``fun(*primals)``, the function of tangents that gives its derivative there[, aux])."""
        check_callable(fun)
        flat = Flat(self.border, fun, primals, has_aux=has_aux)
        count = [0]

        def of(*moving: Tensor) -> list:
            outs, extra = flat.at(moving)
            count[0] = len(outs)
            return [*outs, *extra]

        push: Callable | None = None
        if flat.places:
            both, push = linearize(of, *flat.moving())
        else:
            both = of()
        outs, extra = both[: count[0]], both[count[0] :]

        def lin(*tangents: Any) -> Any:
            leaves, given = self.border.registry.flatten(tangents)
            if given != flat.args:
                raise TypeError(f"expected {flat.args}, got {given}")
            pairs = zip(flat.avals, leaves, strict=True)
            checked = [_linear_tangent(self.border, p, t) for p, t in pairs]
            moved = [_zeros(o) for o in outs]
            if push is not None:
                moved = push(*[checked[i] for i in flat.places])[: count[0]]
            return flat.tangents(outs, list(moved))

        answer = flat.tree(outs), Partial(lin)
        return (*answer, flat.aux.tree(extra)) if has_aux else answer


# --- what does not fit ---------------------------------------------------------------------------
def _checked_cotangents(fun: Callable, flat: Flat, outs: list, given: Any) -> list:
    border = flat.border
    leaves, form = border.registry.flatten(given)
    if form != flat.form:
        raise ValueError(
            f"unexpected tree structure.\n\nThe argument to a VJP function returned by "
            f"`{border.api}.vjp` must match the pytree structure of the differentiated function "
            f"{name_of(fun)}.\n\nBut the tree structures differ: {form} given, {flat.form} needed"
        )
    found: list = []
    for out, leaf in zip(outs, leaves, strict=True):
        like = aval(out)
        if not moves(like.dtype):
            found.append(None)
            continue
        g = border.take(leaf)[0]
        if not aval(g).matches(like):
            raise ValueError(
                f"unexpected {border.api.upper()} type (e.g. shape/dtype) for argument to VJP "
                f"function: got {aval(g)}, but expected {like} because the corresponding output of "
                f"the differentiated function had {border.api.upper()} type {like}"
            )
        found.append(g)
    return found


def check_input(where: str, kind: np.dtype, holomorphic: bool, allow_int: bool) -> None:
    """Raise ``TypeError`` unless an argument of that type can be differentiated."""
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


def check_output(border: Border, where: str, kind: np.dtype, holomorphic: bool) -> None:
    """Raise ``TypeError`` unless a result of that type can be differentiated."""
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
            f"outputs, use {border.api}.vjp directly."
        )
    if kind.kind in "biu":
        raise TypeError(
            f"{where} requires real-valued outputs (output dtype that is a sub-dtype of "
            f"np.floating), but got {kind.name}. For differentiation of functions with integer "
            f"outputs, use {border.api}.vjp directly."
        )


def _scalar(border: Border, where: str, result: Any, holomorphic: bool) -> Tensor:
    if not isinstance(result, border.kind):
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {result}.")
    out = border.take(result)[0]
    shape, kind = out.meta()
    if shape:
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output had shape: {tuple(shape)}."
        )
    check_output(border, where, kind, holomorphic)
    return out


def _tangent(border: Border, primal: Aval, tangent: Any) -> Any:
    t = None if border.is_nothing(tangent) else border.take(tangent)[0]
    known = None if t is None else aval(t)
    kind = primal.dtype if moves(primal.dtype) else None
    if kind != (known.dtype if known else None):
        raise TypeError(
            f"primal and tangent arguments to {border.api}.jvp do not match; dtypes must be equal, "
            "or in case of int/bool primal dtype the tangent dtype must be float0."
            f"Got primal dtype {primal.dtype.name} and so expected tangent dtype "
            f"{kind.name if kind else _FLOAT0}, but got tangent dtype "
            f"{known.dtype.name if known else 'float0'} instead."
        )
    shape = known.shape if known else tuple(np.shape(tangent))
    if shape != primal.shape:
        raise ValueError(
            "jvp called with different primal and tangent shapes;Got primal shape "
            f"{primal.shape} and tangent shape as {shape}"
        )
    return t


_FLOAT0 = "[('float0', 'V')]"  # the type of what stands for nothing


def _linear_tangent(border: Border, primal: Aval, tangent: Any) -> Any:
    if border.is_nothing(tangent) and not moves(primal.dtype):
        return None
    t, weak = border.take(tangent)
    given = aval(t, weak)
    if not given.matches(primal) or not moves(primal.dtype):
        needed = repr(primal) if moves(primal.dtype) else "float0[]"
        raise ValueError(
            "linearized function called on tangent values inconsistent with the original primal "
            f"values:\nGot tangent aval {given!r} for primal aval {primal!r} but expected {needed}."
        )
    return t


def _pushed(flat: Flat, tangents: list) -> tuple[list, list, list]:
    if not flat.places:
        outs, extra = flat.at(())
        return outs, [_zeros(o) for o in outs], extra
    none = create.zeros()

    def of(*moving: Tensor) -> Any:
        outs, extra = flat.at(moving)
        return (outs or [none]), extra

    outs, moved, extra = push_forward(of, tuple(flat.moving()), tuple(tangents), has_aux=True)
    return (outs, moved, extra) if flat.form.num_leaves else ([], [], extra)


__all__ = ["Derivatives", "Reverse", "check_input", "check_output", "conjugate"]
