"""``linear_transpose``, ``closure_convert``, ``custom_gradient``, ``fwd_and_bwd``: what is made of
staged functions and of ``vjp``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import disttrain as dt

from ...core.bodies import Body, Ref
from ...core.gate import Tracer
from ...core.types import dtypes
from . import tree
from .array import wrap
from .avals import aval_of
from .custom import custom_vjp
from .errors import short
from .flat import as_array, check_callable, named
from .jaxpr import STYLE
from .jit import Jitted
from .transforms import vjp

_registry = tree.default_registry
# Elementwise primitives that are linear in one of their arguments, of which only that moves.
_LINEAR = {"mul": None, "neg": 0, "div": 0, "real": 0, "imag": 0, "conj": 0, "cast": 0}
_SUMS = ("add", "sub", "where")


def linear_transpose(fun: Callable, *primals: Any, reduce_axes: Sequence = ()) -> Callable:
    """The transpose of ``fun``, which must be linear: from a cotangent of its result to those of
    arguments such as ``primals``, of which shapes and types alone count."""
    check_callable(fun)
    leaves, form = _registry.flatten(primals)
    avals = [aval_of(p) for p in leaves]
    if any(a.dtype.kind not in "fcV" for a in avals):
        raise TypeError(
            "linear_transpose only supports [float or complex] -> [float or complex], and integer "
            f"-> integer functions, but got {[a.dtype.name for a in avals]}"
        )
    jitted = Jitted(fun)
    staged = jitted.staged(jitted.kind(primals, {}), "linear_transpose").staged
    _check_linear(staged.body, len(staged.consts))

    def transposed(cotangent: Any) -> tuple:
        zeros = [wrap(dt.zeros(a.shape, dtype=dtypes.of(a.dtype)), a.weak) for a in avals]
        out, pull = vjp(fun, *form.build(iter(zeros)))
        given = tree.tree_structure(cotangent)
        if given != tree.tree_structure(out):
            raise TypeError(
                "cotangent tree does not match function output, expected "
                f"{tree.tree_structure(out)} but got {given}"
            )
        pairs = zip(tree.tree_leaves(out), tree.tree_leaves(cotangent), strict=True)
        for like, c in pairs:
            c = as_array(c)
            if (c.shape, c.dtype) != (like.shape, like.dtype):
                raise TypeError(
                    "cotangent type does not match function output, expected "
                    f"{short(like)} but got {short(c)}"
                )
        return pull(cotangent)

    return named(transposed, fun)


def _check_linear(body: Body, consts: int) -> None:
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
                f"Transpose rule (for reverse-mode differentiation) for '{STYLE.name(name)}' not "
                "implemented"
            )


def closure_convert(fun: Callable, *example_args: Any) -> tuple[Callable, list]:
    """(``fun`` with what it closes over of a transform's values as further arguments, these)."""
    jitted = Jitted(fun)
    call = jitted.kind(example_args, {})
    trace = jitted.staged(call, "closure_convert")
    consts = trace.staged.consts
    places = [
        i for i, t in enumerate(consts)
        if (isinstance(t, Tracer) or t.requires_grad) and t.meta()[1].kind in "fcV"
    ]  # fmt: skip
    hoisted = [wrap(consts[i]) for i in places]

    def converted(*args: Any) -> Any:
        count = len(args) - len(places)
        given, more = args[:count], args[count:]
        values = [as_array(v)._value for v in _registry.flatten((given, {}))[0]]
        full = list(consts)
        for i, v in zip(places, more, strict=True):
            full[i] = as_array(v)._value
        return trace.result(trace.staged.body(*full, *values))

    return named(converted, fun), hoisted


def custom_gradient(fun: Callable) -> Callable:
    """``fun(*args)`` gives (result, a function from its cotangent to those of the arguments): the
    result, with these gradients."""

    def value(*args: Any) -> Any:
        return fun(*args)[0]

    def bwd(args: tuple, g: Any) -> tuple:
        found = fun(*args)[1](g)
        return found if isinstance(found, tuple) and len(args) != 1 else _one(found, args)

    made = custom_vjp(named(value, fun))
    made.defvjp(lambda *args: (made(*args), args), bwd)
    return made


def _one(found: Any, args: tuple) -> tuple:
    single = isinstance(found, (tuple, list)) and len(found) == len(args) == 1
    return tuple(found) if single else (found,)


def fwd_and_bwd(
    fun: Callable, argnums: Any, has_aux: bool = False, jitted: bool = True
) -> tuple[Callable, Callable]:
    """``vjp`` in two functions: ``fwd(*args)`` gives (result, residuals[, aux]), ``bwd(residuals,
    g)`` the cotangents of the arguments ``argnums``."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def fwd(*args: Any) -> Any:
        def of(*chosen: Any) -> Any:
            full = list(args)
            for n, v in zip(numbers, chosen, strict=True):
                full[n] = v
            return fun(*full)

        return vjp(of, *[args[n] for n in numbers], has_aux=has_aux)

    def bwd(residuals: Callable, g: Any) -> Any:
        found = residuals(g)
        return found[0] if isinstance(argnums, int) else found

    return fwd, bwd


def checkpoint_name(x: Any, name: str) -> Any:
    """``x``, under a name that policies of ``checkpoint`` may know."""
    return x


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """In the block what depends on no traced value is computed at once: it always is."""
    yield


NAMES = {
    f.__name__: f
    for f in (linear_transpose, closure_convert, custom_gradient, fwd_and_bwd,
              ensure_compile_time_eval)
}  # fmt: skip
