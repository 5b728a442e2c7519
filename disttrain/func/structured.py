"""Control flow of functions of trees: ``scan``, ``while_loop``, ``fori_loop``, ``cond``,
``switch``, ``map``, ``associative_scan``, always as one instruction each. What stands for tensors
in the trees is a ``Border``'s affair.

(The names, meanings and words are those of XLA's users; PyTorch's are in ``control_flow``.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import CaptureError, OperandError, ShapeError
from ..ops.functions.views.join import cat
from . import control_flow
from .instructions import run_scan, run_switch, run_while, staged
from .structured_bodies import (
    Aval,
    Border,
    Function,
    Leaves,
    built,
    check_branches,
    check_carry,
    leaves_of,
    strengthened,
)
from .vmap import vmap

_NONE = object()


class ControlFlow:
    """The functions, for trees with what ``border`` makes of tensors. ``no_way_back``: what is said
    where gradients are asked for through a loop that may turn any number of times."""

    def __init__(self, border: Border, no_way_back: str) -> None:
        self.border, self.no_way_back = border, no_way_back

    # --- loops --------------------------------------------------------------------------------
    def scan(
        self, f: Callable, init: Any, xs: Any = None, length: Any = None, reverse: bool = False,
        unroll: int | bool = 1, _split_transpose: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """``carry, y = f(carry, x)`` for the slices of ``xs``: (the last carry, all y stacked).
        ``length``: how many, where there is no ``xs``; ``unroll`` is taken."""
        _callable("lax.scan: f argument should be a callable.", f)
        if not isinstance(unroll, bool) and unroll < 0:
            raise ShapeError("`unroll` must be a `bool` or a non-negative `int`.")
        carry, rows = leaves_of(self.border, init), self._sequences(xs)
        count = _length(rows.avals, length)
        slices = [Aval(a.shape[1:], a.dtype, a.weak) for a in rows.avals]
        body = self._scan_body(f, carry, rows, slices)
        n = len(carry.tensors)
        if body.form.parts[0].num_leaves == n:
            stronger = strengthened(self.border, carry, body.avals[:n])
            if stronger is not None:
                carry = stronger
                body = self._scan_body(f, carry, rows, slices)
        form = body.form.parts[0]
        check_carry(self.border, "scan body", f, carry, form, body.avals[: form.num_leaves])
        last, ys = run_scan(body.staged, carry.tensors, rows.tensors, count, bool(reverse))
        return body.result([*last, *ys])

    def _scan_body(self, f: Callable, carry: Leaves, rows: Leaves, slices: list) -> Function:
        body = Function(self.border, f, [carry.form, rows.form], [*carry.avals, *slices])
        if len(body.form.parts) != 2:
            found = body.form.build(iter(body.avals))
            raise OperandError(f"scan body output must be a pair, got {found!r}.")
        return body

    def _sequences(self, xs: Any) -> Leaves:
        rows = leaves_of(self.border, xs)
        odd = [
            str(x) for x, a in zip(self.border.registry.flatten(xs)[0], rows.avals, strict=True)
            if not a.shape
        ]  # fmt: skip
        if odd:
            raise ShapeError(f"scan got value with no leading axis to scan over: {', '.join(odd)}.")
        return rows

    def while_loop(self, cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
        """``val = body_fun(val)`` while ``cond_fun(val)``."""
        _callable(
            "lax.while_loop: body_fun and cond_fun arguments should be callable.",
            cond_fun,
            body_fun,
        )
        carry = leaves_of(self.border, init_val)
        cond, body = self._while_parts(cond_fun, body_fun, carry)
        if body.form.num_leaves == len(carry.tensors):
            stronger = strengthened(self.border, carry, body.avals)
            if stronger is not None:
                carry = stronger
                cond, body = self._while_parts(cond_fun, body_fun, carry)
        check_carry(self.border, "while_loop body", body_fun, carry, body.form, body.avals)
        return body.result(run_while(cond.staged, body.staged, carry.tensors, self.no_way_back))

    def _while_parts(self, cond_fun: Callable, body_fun: Callable, carry: Leaves) -> tuple:
        cond, body = (
            Function(self.border, f, [carry.form], carry.avals) for f in (cond_fun, body_fun)
        )
        if not cond.form.is_leaf:
            raise OperandError(
                f"cond_fun must return a boolean scalar, but got pytree {cond.form!r}."
            )
        (pred,) = cond.avals
        if pred.shape or pred.dtype.kind != "b":
            weak = ", weak_type=True" if pred.weak else ""
            raise OperandError(
                "cond_fun must return a boolean scalar, but got output type(s) "
                f"[ShapedArray({pred}{weak})]."
            )
        return cond, body

    def fori_loop(
        self, lower: Any, upper: Any, body_fun: Callable, init_val: Any, *,
        unroll: int | bool | None = None,
    ) -> Any:  # fmt: skip
        """``val = body_fun(i, val)`` for i from ``lower`` to ``upper - 1``. Bounds whose numbers
        are there make it a ``scan``, which has a way back."""
        _callable("lax.fori_loop: body_fun argument should be callable.", body_fun)
        give, bounds = self.border.give, [self.border.take(b) for b in (lower, upper)]
        kind = _common_kind(*bounds)
        known = [_known(t) for t, _ in bounds]

        def turn(carry: tuple, _: None) -> tuple:
            i, value = carry
            t, weak = self.border.take(i)
            return (give(t + 1, weak), body_fun(i, value)), None

        if known[0] is not None and known[1] is not None:
            count = max(known[1] - known[0], 0)
            start = give(bounds[0][0], bounds[0][1] or isinstance(lower, int))
            carry = (start, init_val)
            return self.scan(turn, carry, None, length=count, unroll=unroll or False)[0][1]
        if unroll is not None and unroll is not False and unroll != 1:
            raise ShapeError(
                "Can only use `unroll` in `fori_loop` if the loop bounds are statically known."
            )
        start, end = (give(t.to(dtypes.of(kind)), weak) for t, weak in bounds)

        def going(carry: tuple) -> Any:
            return give(self.border.take(carry[0])[0] < self.border.take(carry[1])[0], False)

        def step(carry: tuple) -> tuple:
            i, stop, value = carry
            (after, found), _ = turn((i, value), None)
            return after, stop, found

        return self.while_loop(going, step, (start, end, init_val))[2]

    # --- branches -----------------------------------------------------------------------------
    def cond(
        self, pred: Any, true_fun: Any, false_fun: Any, *operands: Any, operand: Any = _NONE,
        linear: Any = None,
    ) -> Any:  # fmt: skip
        """``true_fun(*operands)`` where ``pred`` holds, else ``false_fun(*operands)``."""
        if not (callable(true_fun) and callable(false_fun)):
            if callable(false_fun) and len(operands) == 2 and callable(operands[1]):  # of old
                on_true, yes, on_false, no = true_fun, false_fun, *operands
                return self.cond(pred, lambda x, _: yes(x), lambda _, x: no(x), on_true, on_false)
            raise OperandError("lax.cond: true_fun and false_fun arguments should be callable.")
        operands = _operands(operands, operand)
        if pred is None:
            raise OperandError("cond predicate is None")
        if isinstance(pred, Sequence):
            raise OperandError(f"Pred must be a scalar, got {pred} of type {type(pred)}")
        flag = self._taken(pred, "Pred type must be either boolean or number, got {}.")
        shape, kind = flag.meta()
        if shape:
            raise OperandError(f"Pred must be a scalar, got {pred} of shape {tuple(shape)}.")
        if kind.kind not in "biuf":
            raise OperandError(f"Pred type must be either boolean or number, got {kind.name}.")
        given = leaves_of(self.border, operands)
        forms = list(given.form.parts)
        yes, no = (Function(self.border, f, forms, given.avals) for f in (true_fun, false_fun))
        names, both = ("true_fun", "false_fun"), (true_fun, false_fun)
        check_branches(self.border, "cond", names, both, yes, no)
        index = (flag != 0).to(dtypes.int32)
        return yes.result(run_switch(index, [no.staged, yes.staged], given.tensors))

    def switch(
        self, index: Any, branches: Sequence[Callable], *operands: Any, operand: Any = _NONE,
        linear: Any = None,
    ) -> Any:  # fmt: skip
        """``branches[index](*operands)``; an index beyond the ends stands for the branch there."""
        _callable("lax.switch: branches argument should be a sequence of callables.", *branches)
        operands = _operands(operands, operand)
        place = self._taken(index, "Index type must be an integer, got {}.")
        shape, kind = place.meta()
        if shape:
            raise OperandError(f"Branch index must be scalar, got {index} of shape {tuple(shape)}.")
        if kind.kind not in "iu":
            raise OperandError(f"Index type must be an integer, got {index} as {kind.name}")
        if not branches:
            raise ShapeError("Empty branch sequence")
        if len(branches) == 1:
            return branches[0](*operands)
        given = leaves_of(self.border, operands)
        forms = list(given.form.parts)
        found = [Function(self.border, f, forms, given.avals) for f in branches]
        for i, other in enumerate(found[1:], 1):
            names, both = ("branch 0", f"branch{i}"), (branches[0], branches[i])
            check_branches(self.border, "switch", names, both, found[0], other)
        at = place.to(dtypes.int32).clamp(0, len(branches) - 1)
        return found[0].result(run_switch(at, [f.staged for f in found], given.tensors))

    def _taken(self, value: Any, otherwise: str) -> Tensor:
        try:
            return self.border.take(value)[0]
        except TypeError:
            raise OperandError(otherwise.format(value)) from None

    # --- of many elements ---------------------------------------------------------------------
    def map(self, f: Callable, xs: Any, *, batch_size: int | None = None) -> Any:
        """``f`` of every slice of ``xs``, stacked; ``batch_size`` of them at once."""
        if batch_size is None:
            return self.scan(lambda _, x: ((), f(x)), (), xs)[1]
        given = leaves_of(self.border, xs)
        count = given.avals[0].shape[0]
        at = count // batch_size * batch_size
        form: list = []

        def of(*tensors: Tensor) -> list[Tensor]:
            value = built(self.border, given.form, tensors, given.avals)
            found = leaves_of(self.border, f(value))
            form[:] = [found]
            return found.tensors

        many = vmap(of, randomness="different")
        parts: list = []
        if at:
            rows = [t[:at].reshape(-1, batch_size, *t.shape[1:]) for t in given.tensors]
            found = run_scan(staged(many, [r[0] for r in rows]), [], rows, len(rows[0]))[1]
            parts.append([t.flatten(0, 1) for t in found])
        if at < count or not at:
            parts.append(many(*[t[at:] for t in given.tensors]))
        whole = [p[0] if len(p) == 1 else cat(list(p)) for p in zip(*parts, strict=True)]
        return built(self.border, form[0].form, whole, form[0].avals)

    def associative_scan(
        self, fn: Callable, elems: Any, reverse: bool = False, axis: int = 0
    ) -> Any:
        """All prefixes of ``elems`` combined by ``fn``."""
        _callable("lax.associative_scan: fn argument should be callable.", fn)
        given = leaves_of(self.border, elems)
        shapes = [a.shape for a in given.avals]
        n = len(shapes[0])
        if not -n <= axis < n:
            raise ShapeError(f"axis {axis} is out of bounds for array of dimension {n}")
        axis %= n
        if any(s[axis] != shapes[0][axis] for s in shapes):
            raise ShapeError(
                "Array inputs to associative_scan must have the same first dimension. (saw: "
                f"{shapes})"
            )

        def combine(a: list, b: list) -> list:
            one, two = (built(self.border, given.form, part, given.avals) for part in (a, b))
            return leaves_of(self.border, fn(one, two)).tensors

        out = given.tensors
        if shapes[0][axis]:
            out = control_flow.associative_scan(combine, out, axis, reverse)
        return built(self.border, given.form, out, given.avals)


def _callable(otherwise: str, *functions: Any) -> None:
    if not all(map(callable, functions)):
        raise OperandError(otherwise)


def _length(rows: Sequence[Aval], length: Any) -> int:
    sizes = [a.shape[0] for a in rows]
    if length is not None:
        length = int(length)
        if any(n != length for n in sizes):
            raise ShapeError(
                f"scan got `length` argument of {length} which disagrees with leading axis sizes "
                f"{sizes}."
            )
        return length
    if not sizes:
        raise ShapeError("scan got no values to scan over and `length` not provided.")
    if len(set(sizes)) > 1:
        raise ShapeError(
            f"scan got values with different leading axis sizes: {', '.join(map(str, sizes))}."
        )
    return sizes[0]


def _known(x: Tensor) -> int | None:
    """A number that is there; None for one of a value that is being staged, or batched."""
    try:
        return int(x)
    except CaptureError:
        return None


def _common_kind(lower: tuple, upper: tuple) -> np.dtype:
    (a, one), (b, two) = ((t.meta()[1], weak) for t, weak in (lower, upper))
    if a == b:
        return a
    if a.kind == b.kind == "i" and one != two:
        return b if one else a
    raise OperandError(
        f"lower and upper arguments to fori_loop must have equal types, got {a.name} and {b.name}"
    )


def _operands(operands: tuple, operand: Any) -> tuple:
    if operand is _NONE:
        return operands
    if operands:
        raise OperandError(
            "if 'operand' keyword is passed then no positional operands can be passed, got "
            f"{operand=} and positional operands {operands}"
        )
    return (operand,)
