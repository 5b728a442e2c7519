"""Solutions of equations, with the derivatives of what they solve and not of how that was done:
roots of functions, linear systems. What a solver does may be a loop without a way back.

(By the implicit function theorem; the names and meanings are JAX's.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.backward.function import Function
from ..core.bodies import held
from ..core.tensor import Tensor
from ..errors import OperandError
from .instructions import staged
from .jvp import jvp
from .reverse import vjp
from .structured_bodies import Border, Leaves, built, leaves_of

Flat = Callable[[list], list]


class _Solution(Function):
    """x of A x = b as a linear function of b: forward by one solver, backward by another. What A is
    made of goes first, as constants."""

    generate_vmap_rule = True

    @staticmethod
    def forward(problem: _Problem, *values: Tensor) -> tuple:  # type: ignore[override]
        return tuple(problem.solve(*problem.split(values)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.problem = inputs[0]
        consts, _ = ctx.problem.split(inputs[1:])
        ctx.save_for_backward(*consts)
        ctx.save_for_forward(*consts)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple:
        problem = ctx.problem
        if problem.back is None:
            raise OperandError(
                "transpose_solve required for backwards mode automatic differentiation of "
                "custom_linear_solve"
            )
        found = problem.back(list(ctx.saved_tensors), list(g))
        return (None, *[None] * problem.count, *found)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Tensor) -> tuple:  # type: ignore[override]
        consts = list(ctx.saved_tensors)
        return tuple(ctx.problem.solve(consts, list(tangents[ctx.problem.count :])))


class _Problem(NamedTuple):
    """``solve(constants, right sides)``, the same for the transposed problem, and how many
    constants there are."""

    solve: Callable[[list, list], list]
    back: Callable[[list, list], list] | None
    count: int

    def split(self, values: Any) -> tuple[list, list]:
        return list(values[: self.count]), list(values[self.count :])


class Implicit:
    """The functions, for trees with what ``border`` makes of tensors."""

    def __init__(self, border: Border) -> None:
        self.border = border

    def flat(self, fun: Callable, like: Leaves) -> Flat:
        """``fun`` of a tree such as ``like`` as a function of lists of tensors."""
        return lambda ts: (
            leaves_of(self.border, fun(built(self.border, like.form, ts, like.avals))).tensors
        )

    def tree(self, fun: Flat, like: Leaves) -> Callable:
        """A function of lists as one of trees such as ``like``."""
        return lambda v: built(
            self.border, like.form, fun(leaves_of(self.border, v).tensors), like.avals
        )

    def custom_root(
        self, f: Callable, initial_guess: Any, solve: Callable, tangent_solve: Callable,
        has_aux: bool = False,
    ) -> Any:  # fmt: skip
        """x with ``f(x) = 0``, which ``solve(f, initial_guess)`` finds; its derivatives are those
        of ``f``, by ``tangent_solve(linear function, right side)``."""
        found = solve(f, initial_guess)
        found, aux = found if has_aux else (found, None)
        x = leaves_of(self.border, found)
        at = [_constant(t) for t in x.tensors]
        flat = self.flat(f, x)
        rest = flat(at)

        def linear(ts: list) -> list:
            return jvp(lambda *v: flat(list(v)), tuple(at), tuple(ts))[1]

        move = leaves_of(self.border, tangent_solve(
            self.tree(linear, x), built(self.border, x.form, rest, x.avals))).tensors  # fmt: skip
        outs = [a - (m - _constant(m)) for a, m in zip(at, move, strict=True)]
        out = built(self.border, x.form, outs, x.avals)
        return (out, aux) if has_aux else out

    def custom_linear_solve(
        self, matvec: Callable, b: Any, solve: Callable, transpose_solve: Callable | None = None,
        symmetric: bool = False, has_aux: bool = False,
    ) -> Any:  # fmt: skip
        """x with ``matvec(x) = b``, which ``solve(matvec, b)`` finds; for going back,
        ``transpose_solve`` with the transposed function (``solve``, where it is ``symmetric``)."""
        right, aux = leaves_of(self.border, b), None
        own = staged(lambda *ts: self.flat(matvec, right)(list(ts)), right.tensors)
        other = solve if symmetric else transpose_solve

        def straight(consts: list) -> Flat:
            return lambda ts: own.body(*consts, *ts)

        def turned(consts: list) -> Flat:
            def run(ts: list) -> list:
                zeros = [t * 0 for t in ts]
                return vjp(lambda *v: own.body(*consts, *v), *zeros)[1](list(ts))

            return straight(consts) if symmetric else run

        def by(solver: Callable, of: Callable[[list], Flat]) -> Callable[[list, list], list]:
            def run(consts: list, ts: list) -> list:
                nonlocal aux
                given = built(self.border, right.form, ts, right.avals)
                out = solver(self.tree(of(consts), right), given)
                out, aux = out if has_aux else (out, None)
                return leaves_of(self.border, out).tensors

            return run

        back = None if other is None else by(other, turned)
        problem = _Problem(by(solve, straight), back, len(own.consts))
        fixed = [_constant(c) for c in own.consts]
        first = problem.solve(fixed, [_constant(t) for t in right.tensors])
        first, kept = [_constant(t) for t in first], aux
        here = own.body(*own.consts, *first)
        rest = [r - a for r, a in zip(right.tensors, here, strict=True)]
        move = _Solution.apply(problem, *fixed, *rest)
        outs = [a + (m - _constant(m)) for a, m in zip(first, move, strict=True)]
        out = built(self.border, right.form, outs, right.avals)
        return (out, kept) if has_aux else out


def _constant(t: Tensor) -> Tensor:
    return held(t) if t.meta()[1].kind in "fcV" else t
