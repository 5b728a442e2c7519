"""What is made of staged functions and of ``vjp``: transposes of linear functions, conversion of
closures, gradients told beside the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.bodies import Body, Ref
from ...core.gate import Tracer
from ...core.types import dtypes
from ...ops.functions.creation import create
from ..structured_bodies import aval
from .custom import CustomVjp
from .derivatives import Derivatives
from .flat import check_callable, moves, named, numbers, placed
from .listing import Style
from .programs import Programs

# Elementwise primitives that are linear in one of their arguments, of which only that moves.
_LINEAR = {"mul": None, "neg": 0, "div": 0, "real": 0, "imag": 0, "conj": 0, "cast": 0}
_SUMS = ("add", "sub", "where")


class Transposes(Derivatives):
    """The functions. ``programs`` stages functions, ``custom`` gives them rules of their own."""

    def __init__(self, programs: type[Programs], custom: type[CustomVjp]) -> None:
        super().__init__(programs.border)
        self.programs, self.custom = programs, custom

    def linear_transpose(
        self, fun: Callable, *primals: Any, reduce_axes: Sequence = ()
    ) -> Callable:
        """The transpose of ``fun``, which must be linear: from a cotangent of its result to those
        of arguments such as ``primals``, of which shapes and types alone count."""
        check_callable(fun)
        border, programs = self.border, self.programs(fun)
        form = border.registry.flatten(primals)[1]
        call = programs.kind(primals, {})
        if any(not moves(a.dtype) for a in call.avals):
            raise TypeError(
                "linear_transpose only supports [float or complex] -> [float or complex], and "
                f"integer -> integer functions, but got {[a.dtype.name for a in call.avals]}"
            )
        staged = programs.staged(call, "linear_transpose").staged
        _check_linear(programs.style, staged.body, len(staged.consts))

        def transposed(cotangent: Any) -> tuple:
            zeros = [
                border.give(create.zeros(*a.shape, dtype=dtypes.of(a.dtype)), a.weak)
                for a in call.avals
            ]
            out, pull = self.vjp(fun, *form.build(iter(zeros)))
            (likes, needed), (given, other) = map(border.registry.flatten, (out, cotangent))
            if other != needed:
                raise TypeError(
                    "cotangent tree does not match function output, expected "
                    f"{needed} but got {other}"
                )
            for like, c in zip(likes, given, strict=True):
                one, two = (aval(border.take(x)[0]) for x in (like, c))
                if not two.matches(one):
                    raise TypeError(
                        f"cotangent type does not match function output, expected {one} but got "
                        f"{two}"
                    )
            found: tuple = pull(cotangent)
            return found

        return named(transposed, fun)

    def closure_convert(self, fun: Callable, *example_args: Any) -> tuple[Callable, list]:
        """(``fun`` with what it closes over of a transform's values as further arguments,
        these)."""
        programs, border = self.programs(fun), self.border
        program = programs.staged(programs.kind(example_args, {}), "closure_convert")
        consts = program.staged.consts
        places = [
            i for i, t in enumerate(consts)
            if (isinstance(t, Tracer) or t.requires_grad) and moves(t.meta()[1])
        ]  # fmt: skip
        hoisted = [border.give(consts[i], False) for i in places]

        def converted(*args: Any) -> Any:
            count = len(args) - len(places)
            given, more = args[:count], args[count:]
            values = [border.take(v)[0] for v in border.registry.flatten((given, {}))[0]]
            full = placed(consts, places, [border.take(v)[0] for v in more])
            return program.result(program.staged.body(*full, *values))

        return named(converted, fun), hoisted

    def custom_gradient(self, fun: Callable) -> Callable:
        """``fun(*args)`` gives (result, a function from its cotangent to those of the arguments):
        the result, with these gradients."""

        def value(*args: Any) -> Any:
            return fun(*args)[0]

        def bwd(args: tuple, g: Any) -> tuple:
            found = fun(*args)[1](g)
            return found if isinstance(found, tuple) and len(args) != 1 else _one(found, args)

        made = self.custom(named(value, fun))
        made.defvjp(lambda *args: (made(*args), args), bwd)
        return made

    def fwd_and_bwd(
        self, fun: Callable, argnums: Any, has_aux: bool = False, jitted: bool = True
    ) -> tuple[Callable, Callable]:
        """``vjp`` in two functions: ``fwd(*args)`` gives (result, residuals[, aux]),
        ``bwd(residuals, g)`` the cotangents of the arguments ``argnums``."""
        chosen = numbers(argnums)

        def fwd(*args: Any) -> Any:
            def of(*values: Any) -> Any:
                return fun(*placed(args, chosen, values))

            return self.vjp(of, *[args[n] for n in chosen], has_aux=has_aux)

        def bwd(residuals: Callable, g: Any) -> Any:
            found = residuals(g)
            return found[0] if isinstance(argnums, int) else found

        return fwd, bwd


def _one(found: Any, args: tuple) -> tuple:
    single = isinstance(found, (tuple, list)) and len(found) == len(args) == 1
    return tuple(found) if single else (found,)


def _check_linear(style: Style, body: Body, consts: int) -> None:
    """Raise where a step is not linear in what moves."""
    moving = set(range(consts, body.count))
    for step in body.steps:
        inner = getattr(step.prim, "body", None)
        there = [a.__class__ is Ref and a.number in moving for a in step.args]
        if not any(there):
            continue
        moving |= {i for i in step.made if body.metas[i][1].kind in "fcV"}
        name, kind = step.prim.name, step.prim.jvp
        one = sum(there) == 1
        place = _LINEAR.get(name, -1)
        fits = (
            inner is not None or kind == "linear" or (kind == "multilinear" and one)
            or (name in _SUMS and not (name == "where" and there[0]))
            or (name in _LINEAR and one and (place is None or there[place]))
        )  # fmt: skip
        if not fits:
            raise NotImplementedError(
                f"Transpose rule (for reverse-mode differentiation) for '{style.name(name)}' not "
                "implemented"
            )


__all__ = ["Transposes"]
