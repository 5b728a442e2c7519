"""``lax.scan``, ``while_loop``, ``fori_loop``, ``cond``, ``switch``, ``map``, ``associative_scan``
over the instructions of ``func``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import disttrain as dt

from .... import func
from ....core.types import dtypes
from ....func.instructions import run_scan, run_switch, run_while
from .. import errors, transforms, tree
from ..array import Array, wrap
from ..transforms import as_array
from .staged import (
    Aval,
    Function,
    Leaves,
    built,
    check_branches,
    check_carry,
    leaves_of,
    registry,
    strengthened,
)

_NONE = object()
NO_WAY_BACK = (
    "Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with dynamic "
    "start/stop values. Try using lax.scan, or using fori_loop with static start/stop."
)


def scan(
    f: Callable, init: Any, xs: Any = None, length: Any = None, reverse: bool = False,
    unroll: int | bool = 1, _split_transpose: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """``carry, y = f(carry, x)`` for the slices of ``xs``: (the last carry, all y stacked)."""
    if not callable(f):
        raise TypeError("lax.scan: f argument should be a callable.")
    if not isinstance(unroll, bool) and unroll < 0:
        raise ValueError("`unroll` must be a `bool` or a non-negative `int`.")
    sequences = registry.flatten(xs)
    carry, rows = leaves_of(init), _sequences(*sequences)
    count = _length(rows.arrays, length)
    slices = [Aval(a.shape[1:], a.dtype, a.weak_type) for a in rows.arrays]
    body = _scan_body(f, carry, rows, slices)
    n = len(carry.arrays)
    out_form, out_avals = body.form.children[0], body.avals
    if out_form.num_leaves == n:
        stronger = strengthened(carry, out_avals[:n])
        if stronger is not None:
            carry = stronger
            body = _scan_body(f, carry, rows, slices)
            out_form, out_avals = body.form.children[0], body.avals
    check_carry("scan body", f, carry, out_form, out_avals[: out_form.num_leaves])
    last, ys = run_scan(body.staged, carry.tensors, rows.tensors, count, bool(reverse))
    return body.result([*last, *ys])


def _scan_body(f: Callable, carry: Leaves, rows: Leaves, slices: list[Aval]) -> Function:
    body = Function(f, [carry.form, rows.form], [*carry.avals, *slices])
    if len(body.form.children) != 2:
        raise TypeError(f"scan body output must be a pair, got {body.form.build(iter(body.avals))}.")
    return body


def _sequences(leaves: list, form: Any) -> Leaves:
    arrays = [x if not hasattr(x, "shape") else as_array(x) for x in leaves]
    odd = [str(x) for x in arrays if not isinstance(x, Array) or not x.ndim]
    if odd:
        raise ValueError(f"scan got value with no leading axis to scan over: {', '.join(odd)}.")
    return Leaves(arrays, form)


def _length(rows: Sequence[Array], length: Any) -> int:
    sizes = [a.shape[0] for a in rows]
    if length is not None:
        length = int(length)
        if any(n != length for n in sizes):
            raise ValueError(
                f"scan got `length` argument of {length} which disagrees with leading axis sizes "
                f"{sizes}."
            )
        return length
    if not sizes:
        raise ValueError("scan got no values to scan over and `length` not provided.")
    if len(set(sizes)) > 1:
        raise ValueError(
            f"scan got values with different leading axis sizes: {', '.join(map(str, sizes))}."
        )
    return sizes[0]


def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
    """``val = body_fun(val)`` while ``cond_fun(val)``."""
    if not (callable(body_fun) and callable(cond_fun)):
        raise TypeError("lax.while_loop: body_fun and cond_fun arguments should be callable.")
    carry = leaves_of(init_val)
    cond, body = _while_parts(cond_fun, body_fun, carry)
    if body.form.num_leaves == len(carry.arrays):
        stronger = strengthened(carry, body.avals)
        if stronger is not None:
            carry = stronger
            cond, body = _while_parts(cond_fun, body_fun, carry)
    check_carry("while_loop body", body_fun, carry, body.form, body.avals)
    return body.result(run_while(cond.staged, body.staged, carry.tensors, NO_WAY_BACK))


def _while_parts(cond_fun: Callable, body_fun: Callable, carry: Leaves) -> tuple:
    cond = Function(cond_fun, [carry.form], carry.avals)
    body = Function(body_fun, [carry.form], carry.avals)
    if not cond.form.is_leaf:
        raise TypeError(
            f"cond_fun must return a boolean scalar, but got pytree {tree.PyTreeDef(cond.form)}."
        )
    (pred,) = cond.avals
    if pred.shape or pred.dtype.kind != "b":
        raise TypeError(
            f"cond_fun must return a boolean scalar, but got output type(s) "
            f"[ShapedArray({pred}{', weak_type=True' if pred.weak else ''})]."
        )
    return cond, body


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable, init_val: Any, *, unroll: int | bool | None = None
) -> Any:
    """``val = body_fun(i, val)`` for i from ``lower`` to ``upper - 1``."""
    if not callable(body_fun):
        raise TypeError("lax.fori_loop: body_fun argument should be callable.")
    bounds = [as_array(lower), as_array(upper)]
    kind = _common_kind(*bounds)
    known = [_known(b) for b in bounds]
    if None not in known:
        count = max(known[1] - known[0], 0)

        def turn(carry: tuple, _: None) -> tuple:
            i, value = carry
            return (wrap(i._value + 1, i.weak_type), body_fun(i, value)), None

        start = wrap(bounds[0]._value, True) if isinstance(lower, int) else bounds[0]
        return scan(turn, (start, init_val), None, length=count, unroll=unroll or False)[0][1]
    if unroll is not None and unroll is not False and unroll != 1:
        raise ValueError(
            "Can only use `unroll` in `fori_loop` if the loop bounds are statically known."
        )
    start, end = (wrap(b._value.to(dtypes.of(kind)), b.weak_type) for b in bounds)

    def going(carry: tuple) -> Array:
        return wrap(carry[0]._value < carry[1]._value)

    def step(carry: tuple) -> tuple:
        i, stop, value = carry
        return wrap(i._value + 1, i.weak_type), stop, body_fun(i, value)

    return while_loop(going, step, (start, end, init_val))[2]


def _known(x: Array) -> int | None:
    """A number that is there."""
    try:
        return int(np.asarray(x))
    except (errors.JAXTypeError, TypeError):
        return None


def _common_kind(lower: Array, upper: Array) -> np.dtype:
    if lower.dtype == upper.dtype:
        return lower.dtype
    if lower.dtype.kind == upper.dtype.kind == "i" and lower.weak_type != upper.weak_type:
        return upper.dtype if lower.weak_type else lower.dtype
    raise TypeError(
        "lower and upper arguments to fori_loop must have equal types, got "
        f"{lower.dtype.name} and {upper.dtype.name}"
    )


def cond(
    pred: Any, true_fun: Any, false_fun: Any, *operands: Any, operand: Any = _NONE,
    linear: Any = None,
) -> Any:  # fmt: skip
    """``true_fun(*operands)`` where ``pred`` holds, else ``false_fun(*operands)``."""
    if not (callable(true_fun) and callable(false_fun)):
        if callable(false_fun) and len(operands) == 2 and callable(operands[1]):
            on_true, f_true, on_false, f_false = true_fun, false_fun, *operands
            return cond(pred, lambda x, _: f_true(x), lambda _, x: f_false(x), on_true, on_false)
        raise TypeError("lax.cond: true_fun and false_fun arguments should be callable.")
    operands = _operands(operands, operand)
    if pred is None:
        raise TypeError("cond predicate is None")
    if isinstance(pred, Sequence):
        raise TypeError(f"Pred must be a scalar, got {pred} of type {type(pred)}.")
    if np.ndim(pred):
        raise TypeError(f"Pred must be a scalar, got {pred} of shape {np.shape(pred)}.")
    try:
        flag = as_array(pred)
    except TypeError:
        raise TypeError(f"Pred type must be either boolean or number, got {pred}.") from None
    if flag.dtype.kind not in "biuf":
        raise TypeError(f"Pred type must be either boolean or number, got {flag.dtype.name}.")
    index = (flag._value != 0).to(dt.int32)
    given = leaves_of(operands)
    forms = list(given.form.children)
    yes, no = (Function(f, forms, given.avals) for f in (true_fun, false_fun))
    check_branches("cond", ("true_fun", "false_fun"), (true_fun, false_fun), yes, no)
    return yes.result(run_switch(index, [no.staged, yes.staged], given.tensors))


def switch(
    index: Any, branches: Sequence[Callable], *operands: Any, operand: Any = _NONE,
    linear: Any = None,
) -> Any:  # fmt: skip
    """``branches[index](*operands)``; an index beyond the ends stands for the branch there."""
    if not all(callable(branch) for branch in branches):
        raise TypeError("lax.switch: branches argument should be a sequence of callables.")
    operands = _operands(operands, operand)
    if np.ndim(index):
        raise TypeError(f"Branch index must be scalar, got {index} of shape {np.shape(index)}.")
    try:
        place = as_array(index)
    except TypeError:
        raise TypeError(f"Index type must be an integer, got {index}.") from None
    if place.dtype.kind not in "iu":
        raise TypeError(f"Index type must be an integer, got {index} as {place.dtype.name}")
    if not branches:
        raise ValueError("Empty branch sequence")
    if len(branches) == 1:
        return branches[0](*operands)
    given = leaves_of(operands)
    found = [Function(f, list(given.form.children), given.avals) for f in branches]
    for i, other in enumerate(found[1:], 1):
        names = ("branch 0", f"branch{i}")
        check_branches("switch", names, (branches[0], branches[i]), found[0], other)
    at = place._value.to(dt.int32).clamp(0, len(branches) - 1)
    return found[0].result(run_switch(at, [f.staged for f in found], given.tensors))


def _operands(operands: tuple, operand: Any) -> tuple:
    if operand is _NONE:
        return operands
    if operands:
        raise TypeError(
            "if 'operand' keyword is passed then no positional operands can be passed, got "
            f"{operand=} and positional operands {operands}"
        )
    return (operand,)


def map(f: Callable, xs: Any, *, batch_size: int | None = None) -> Any:  # noqa: A001
    """``f`` of every slice of ``xs``, stacked; ``batch_size`` of them at once."""
    if batch_size is None:
        return scan(lambda _, x: ((), f(x)), (), xs)[1]
    given = leaves_of(xs)
    whole = given.arrays[0].shape[0] // batch_size
    at = whole * batch_size

    def part(make: Callable) -> Any:
        return given.form.build(iter([wrap(make(a._value), a.weak_type) for a in given.arrays]))

    rows, rest = None, None
    if whole:
        chunks = part(lambda t: t[:at].reshape(whole, batch_size, *t.shape[1:]))
        rows = scan(lambda _, x: ((), transforms.vmap(f)(x)), (), chunks)[1]
        rows = tree.tree_map(lambda y: wrap(y._value.flatten(0, 1), y.weak_type), rows)
    if at < given.arrays[0].shape[0] or not whole:
        rest = transforms.vmap(f)(part(lambda t: t[at:]))
    if rows is None or rest is None:
        return rest if rows is None else rows
    return tree.tree_map(lambda a, b: wrap(dt.cat([a._value, b._value])), rows, rest)


def associative_scan(fn: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """All prefixes of ``elems`` combined by ``fn``."""
    if not callable(fn):
        raise TypeError("lax.associative_scan: fn argument should be callable.")
    given = leaves_of(elems)
    first = given.arrays[0]
    if not -first.ndim <= axis < first.ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {first.ndim}")
    axis %= first.ndim
    if any(a.shape[axis] != first.shape[axis] for a in given.arrays):
        raise ValueError(
            "Array inputs to associative_scan must have the same first dimension. (saw: "
            f"{[a.shape for a in given.arrays]})"
        )

    def combine(a: list, b: list) -> list:
        return leaves_of(fn(built(given.form, a, given.avals), built(given.form, b, given.avals))
                         ).tensors  # fmt: skip

    out = func.associative_scan(combine, given.tensors, axis, reverse) if first.shape[axis] else (
        given.tensors
    )  # fmt: skip
    return built(given.form, out, given.avals)
