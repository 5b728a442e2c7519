"""Control flow as functions: ``cond``, ``switch``, ``while_loop``, ``fori_loop``, ``scan``,
``associative_scan``, ``map``.

A loop's function is staged: it runs once, without numbers, and becomes the body of one instruction
(``loops``), in a captured function as well, where a branch is one, too. What cannot be staged (it
reads numbers, draws, writes, carries Python's numbers) runs by Python's own statements, which a
captured function takes as its paths; so does a branch elsewhere. Where the examples of a ``vmap``
decide each for itself, both branches run, and a loop runs while any example wants to; each example
has what it chose.

(The names and meanings are PyTorch's: ``torch.cond`` and ``torch._higher_order_ops``; ``switch``
and ``fori_loop`` are JAX's.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from ..context import thread
from ..core.gate import Tracer
from ..core.tensor import Tensor
from ..errors import CaptureError, ConfigError, DeviceError, DimError, ShapeError
from ..ops.functions.creation.create import arange
from ..ops.functions.creation.data import tensor
from ..ops.functions.elementwise import where
from ..ops.functions.views.join import cat, stack
from ..ops.functions.views.shapes import flip, movedim
from .instructions import (
    is_followed,
    is_staging,
    run_scan,
    run_switch,
    run_while,
    staged,
)
from .vmap import BatchTracer

_UNSTAGED = (CaptureError, DeviceError)  # what says that a function cannot be staged


def cond(
    pred: bool | float | Tensor, true_fn: Callable, false_fn: Callable, operands: Sequence = ()
) -> Any:
    """``true_fn(*operands)`` where ``pred`` (one element) holds, else ``false_fn(*operands)``.

    Both must give the same structure, shapes and types; operands are tensors, also in tuples, lists
    and dicts, and are not written to while gradients are recorded.
    """
    if isinstance(pred, (bool, int, float)):
        return (true_fn if pred else false_fn)(*operands)
    _check_cond(pred, true_fn, false_fn, operands)
    if is_staging():
        index = pred.reshape(()).logical_not().long()
        both = _branches("cond: true_fn and false_fn", index, (true_fn, false_fn), operands)
        if both is not None:
            return both[0]
    watched = _Unwritten("cond", operands)
    plain = _same_for_all(pred)
    if plain is not None:
        out = (true_fn if bool(plain) else false_fn)(*operands)
    else:
        found = true_fn(*operands), false_fn(*operands)
        _check_alike("cond: true_fn and false_fn", *found)
        out = _chosen(pred.reshape(()), *found)
    watched.check()
    return out


def _branches(what: str, index: Tensor, branches: Sequence, operands: Any) -> tuple | None:
    """(What the branch of a number gives,) as an instruction; None where that cannot be."""
    given, rebuild = tree.flatten(operands)
    try:
        found = [staged(lambda *v, f=f: f(*rebuild(list(v))), given) for f in branches]
    except _UNSTAGED:
        return None
    for other in found[1:]:
        _check_alike(what, found[0].form, other.form)
    return (found[0].rebuild(run_switch(index, found, given)),)


def switch(index: int | Tensor, branches: Sequence[Callable], *operands: Any) -> Any:
    """``branches[index](*operands)``; an index beyond the ends stands for the branch there."""
    last = len(branches) - 1
    if isinstance(index, int):
        return branches[min(max(index, 0), last)](*operands)
    index = index.reshape(()).clamp(0, last)
    found = _branches("switch: branches", index, branches, operands) if is_staging() else None
    if found is not None:
        return found[0]
    for i in range(last):
        if i == last - 1:
            return cond(index == i, branches[i], branches[last], operands)
        rest = branches[i + 1 :]
        return cond(
            index == i, branches[i], lambda *v, r=rest, i=i: switch(index - i - 1, r, *v), operands
        )
    return branches[0](*operands)


def _check_cond(pred: object, true_fn: object, false_fn: object, operands: object) -> None:
    if not isinstance(pred, Tensor) or pred.numel() != 1:
        given = f"a tensor of shape {list(pred.shape)}" if isinstance(pred, Tensor) else repr(pred)
        raise ConfigError(
            f"cond: Expected pred to be bool or single-element tensor, but got {given}"
        )
    if not callable(true_fn) or not callable(false_fn):
        raise ConfigError("cond: Expect both branches to be callable.")
    inside = tree.leaves(operands)
    if not isinstance(operands, (tuple, list)) or not all(isinstance(t, Tensor) for t in inside):
        raise ConfigError(
            "cond: Expect operands to be a tuple of possibly nested dict/list/tuple that only "
            f"consists of tensor leaves, but got {operands!r}."
        )


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: Sequence) -> Any:
    """``carried = body_fn(*carried)`` while ``cond_fn(*carried)`` (a bool, or a bool tensor without
    dimensions) holds; what is carried at the end.

    ``carried_inputs``: tensors and ints, also in tuples, lists and dicts. ``body_fn`` gives as many
    of the same shapes and types, in a structure of its own (a lone one, too), which the result has;
    it writes to none of them.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise ConfigError("while_loop: Expect cond_fn and body_fn to be callable.")
    inside = tree.leaves(carried_inputs)
    if not isinstance(carried_inputs, (tuple, list)) or not all(
        isinstance(t, (Tensor, int)) for t in inside
    ):
        raise ConfigError(
            "while_loop: Expect carried_inputs to be a tuple of possibly nested dict/list/tuple "
            f"that only consists of tensor or int leaves, but got {carried_inputs!r}."
        )
    at_once = _while_staged(cond_fn, body_fn, carried_inputs, inside)
    if at_once is not None:
        return at_once[0]
    carried = result = tuple(tree.map(_copy, tuple(carried_inputs)))
    _, rebuild = tree.flatten(carried)
    while True:
        watched = _Unwritten("while_loop", carried)
        pred = _checked(cond_fn(*carried))
        going = _same_for_all(pred)
        if not (_any(pred) if going is None else bool(going)):
            return result
        found, whole = tree.flatten(body_fn(*carried))
        watched.check()
        before = tree.leaves(carried)
        _check_alike("while_loop: carried_inputs and what body_fn returns", before, found)
        found = found if going is not None else _chosen(pred, found, before)
        carried, result = rebuild(found), whole(found)


def _while_staged(cond_fn: Any, body_fn: Any, carried: Any, given: list) -> tuple | None:
    """(What is carried at the end,) by an instruction. None where that cannot be, or where a tape
    may want to go back, which it does through what has run."""
    if not all(isinstance(t, Tensor) for t in given):
        return None
    _, rebuild = tree.flatten(tuple(carried))
    try:
        cond = staged(lambda *v: _checked(cond_fn(*rebuild(list(v)))), given)
        body = staged(lambda *v: body_fn(*rebuild(list(v))), given)
    except _UNSTAGED:
        return None
    if thread.grad_enabled and any(is_followed(t) for t in (*cond.consts, *body.consts, *given)):
        return None
    what = "while_loop: carried_inputs and what body_fn returns"
    _check_alike(what, given, tree.leaves(body.form))
    return (body.rebuild(run_while(cond, body, given)),)


def fori_loop(lower: int | Tensor, upper: int | Tensor, body_fn: Callable, init: Any) -> Any:
    """``value = body_fn(i, value)`` for i from ``lower`` to ``upper - 1``, from ``init`` on.
    ``i`` is a tensor. Bounds that are numbers make it a ``scan``, which has a way back."""
    start = lower if isinstance(lower, Tensor) else tensor(lower)
    if isinstance(lower, int) and isinstance(upper, int):
        count = max(upper - lower, 0)
        if not count:
            return init

        def turn(carry: tuple, i: Tensor) -> tuple:
            return body_fn(i, carry), i

        return scan(turn, init, arange(lower, upper))[0]
    end = upper if isinstance(upper, Tensor) else tensor(upper)
    return while_loop(
        lambda i, _: i < end, lambda i, value: (i + 1, body_fn(i, value)), (start, init)
    )[1]


def _checked(pred: Any) -> Any:
    """What ``cond_fn`` may give."""
    if isinstance(pred, bool) or (
        isinstance(pred, Tensor) and not pred.shape and pred.meta()[1].kind == "b"
    ):
        return pred
    raise ConfigError(
        f"while_loop: cond_fn must return a boolean scalar tensor or a boolean but got {pred!r}"
    )


def scan(
    combine_fn: Callable, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """``carry, y = combine_fn(carry, x)`` for the slices ``x`` of ``xs`` along ``dim``, from
    ``init`` on: the last carry, and all ``y`` stacked along ``dim``.

    ``init``, ``xs`` and ``y`` are tensors, or tuples, lists and dicts of them; the carry keeps its
    structure, shapes and types. ``reverse``: from the last slice to the first.
    """
    if not isinstance(reverse, bool):
        raise ConfigError(f"scan: Reverse must be a bool, but got {type(reverse)}")
    parts, rebuild = tree.flatten(xs)
    if not parts:
        return init, []
    _check_scan(combine_fn, init, parts)
    if not -parts[0].ndim <= dim < parts[0].ndim:
        raise DimError(
            f"scan: dim={dim} given; xs has {parts[0].ndim} dimensions: All xs leaves must at "
            "least have 'dim' number of dimensions"
        )
    dim %= parts[0].ndim
    count = _length("scan: All xs leaves", parts, dim)
    found = _scan_staged(combine_fn, init, [movedim(t, dim, 0) for t in parts], rebuild, reverse)
    if found is not None:
        return found[0], tree.map(lambda y: _laid(y, dim, False), found[1])
    carry, outs = init, []
    for i in reversed(range(count)) if reverse else range(count):
        x = rebuild([t.select(dim, i) for t in parts])
        watched = _Unwritten("scan", (carry, x))
        found = combine_fn(carry, x)
        watched.check()
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise ConfigError("scan: combine_fn must return (next carry, output)")
        _check_alike("scan: init and the next carry", carry, found[0])
        carry = found[0]
        outs.append(found[1])
    return carry, tree.map(lambda y: _laid(y, dim, reverse), _stacked(outs))


def _scan_staged(
    combine_fn: Callable, init: Any, parts: list, rebuild: Callable, reverse: bool
) -> tuple | None:
    """The result of ``scan`` over the first dimension, by an instruction; None where that cannot
    be."""
    begin, carried = tree.flatten(init)
    n = len(begin)

    def turn(*values: Tensor) -> tuple:
        carry = carried(list(values[:n]))
        found = combine_fn(carry, rebuild(list(values[n:])))
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise ConfigError("scan: combine_fn must return (next carry, output)")
        _check_alike("scan: init and the next carry", carry, found[0])
        return tuple(found)

    try:
        body = staged(turn, [*begin, *[t[0] for t in parts]])
    except _UNSTAGED:
        return None
    last, ys = run_scan(body, begin, parts, parts[0].shape[0], reverse)
    return tuple(body.rebuild([*last, *ys]))


def _check_scan(combine_fn: object, init: object, parts: list) -> None:
    if not callable(combine_fn):
        raise ConfigError(f"scan: Combine_fn must be a callable, but got {combine_fn!r}")
    given = tree.leaves(init)
    if not given:
        raise ConfigError("scan: scan() operator requires init leaves.")
    for name, found in (("init", given), ("xs", parts)):
        for t in found:
            if not isinstance(t, Tensor):
                raise ConfigError(f"scan: All {name} leaves must be a Tensor but got {t!r}")


def _laid(y: Any, dim: int, reverse: bool) -> Any:
    """Stacked outputs with their new dimension at ``dim``, in the order of the slices."""
    y = flip(y, 0) if reverse else y
    return movedim(y, 0, dim) if 0 < dim < y.ndim else y


def associative_scan(
    combine_fn: Callable, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """All prefixes of ``xs`` along ``dim`` combined: x₀, f(x₀, x₁), f(f(x₀, x₁), x₂) ... for an
    associative ``combine_fn`` of structures such as ``xs``, of all elements at once. In about
    twice as many steps as the logarithm of their number (Blelloch 1990).

    ``reverse``: suffixes, from the last. ``combine_mode`` ("pointwise", "generic") is taken: both
    run alike.
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ConfigError(
            f"associative_scan: Combine_mode must either 'pointwise' or 'generic', but got "
            f"{combine_mode!r}"
        )
    parts, rebuild = tree.flatten(xs)
    if not parts:
        raise ConfigError("associative_scan: Expected at least 1 xs leaf")
    dim %= parts[0].ndim
    _length("associative_scan: xs leaves", parts, dim)

    def combine(a: list, b: list) -> list:
        return tree.leaves(combine_fn(rebuild(a), rebuild(b)))

    given = [flip(t, dim) for t in parts] if reverse else parts
    found = _prefixes(combine, given, dim)
    return rebuild([flip(t, dim) for t in found] if reverse else found)


def _prefixes(combine: Callable, parts: list, dim: int) -> list:
    """Those of pairs first, which are every second one; each of the others is one step further."""
    count = parts[0].shape[dim]
    if count < 2:
        return parts
    lead = (slice(None),) * dim
    pairs = combine(
        [t[(*lead, slice(0, count - 1, 2))] for t in parts],
        [t[(*lead, slice(1, None, 2))] for t in parts],
    )
    odd = _prefixes(combine, pairs, dim)
    first = [t[(*lead, slice(0, 1))] for t in parts]
    rest = [t[(*lead, slice(2, None, 2))] for t in parts]
    even = first
    if rest[0].shape[dim]:
        before = [t[(*lead, slice(0, rest[0].shape[dim]))] for t in odd]
        even = [cat(two, dim) for two in zip(first, combine(before, rest), strict=True)]
    return [_alternating(a, b, dim) for a, b in zip(even, odd, strict=True)]


def _alternating(a: Any, b: Any, dim: int) -> Any:
    """Slices of ``a`` and of ``b`` in turn; ``a`` has as many, or one more."""
    count = b.shape[dim]
    lead = (slice(None),) * dim
    paired = stack([a[(*lead, slice(0, count))], b], dim + 1).flatten(dim, dim + 1)
    return paired if a.shape[dim] == count else cat([paired, a[(*lead, slice(count, None))]], dim)


def map(f: Callable, xs: Any, *args: Any) -> Any:  # noqa: A001  (the field's name)
    """``f(x, *args)`` for each slice ``x`` of ``xs`` (a tensor, or a structure of them) along the
    first dimension, stacked."""
    parts, rebuild = tree.flatten(xs)
    if not parts or not all(isinstance(t, Tensor) for t in parts):
        raise ConfigError(f"map: Mapped xs can only consist of tensors. Got xs {parts!r}.")
    count = _length("map: Leading dimensions of mapped xs", parts, 0)
    try:
        body = staged(lambda *v: f(rebuild(list(v)), *args), [t[0] for t in parts])
    except _UNSTAGED:
        pass
    else:
        return body.rebuild(run_scan(body, [], parts, count)[1])
    return _stacked([f(rebuild([t.select(0, i) for t in parts]), *args) for i in range(count)])


def _length(what: str, parts: list, dim: int) -> int:
    """How many slices all of them have."""
    shapes = [list(t.shape) for t in parts]
    if any(len(s) <= dim or not s[dim] for s in shapes):
        raise ShapeError(f"{what} must have dimension {dim}, and it cannot be 0. Got {shapes}.")
    if any(s[dim] != shapes[0][dim] for s in shapes):
        raise ShapeError(f"{what} must be consistent. Got shapes {shapes}.")
    return shapes[0][dim]


def _stacked(outs: list) -> Any:
    """One structure of stacked tensors, of structures alike."""
    for other in outs[1:]:
        _check_alike("what the function returns for two slices", outs[0], other)
    return tree.map(lambda *ys: stack(ys) if isinstance(ys[0], Tensor) else ys[0], *outs)


# --- values ---------------------------------------------------------------------------------------
def _same_for_all(pred: Any) -> Any:
    """``pred`` below all transforms; None, where the examples of a vmap have one each."""
    while isinstance(pred, Tracer):
        if isinstance(pred, BatchTracer) and pred.bdim is not None:
            return None
        pred = pred.inner
    return pred


def _any(pred: Any) -> bool:
    return bool(pred.plain().any())


def _chosen(pred: Any, found: Any, other: Any) -> Any:
    """``found`` for the examples where ``pred`` holds."""

    def choose(a: Any, b: Any) -> Any:
        if isinstance(a, Tensor):
            return where(pred, a, b)
        if a == b:
            return a
        raise ConfigError(
            f"control flow: {a!r} and {b!r} given; where the examples of a vmap decide each for "
            "itself, numbers cannot differ; use tensors"
        )

    return tree.map(choose, found, other)


def _copy(t: Any) -> Any:
    return t.clone() if isinstance(t, Tensor) else t


def _check_alike(what: str, one: Any, other: Any) -> None:
    """Raise unless two structures have tensors of the same shapes and types at the same places."""
    pairs = zip(tree.leaves(one), tree.leaves(other), strict=False)
    if _shape(one) != _shape(other) or not all(_meta(a) == _meta(b) for a, b in pairs):
        first, second = (tree.map(_kind, x) for x in (one, other))
        raise ShapeError(
            f"{what} must have the same structure, shapes and types; given {first!r} and {second!r}"
        )


def _meta(t: Any) -> Any:
    """What is compared of a leaf (sizes may be symbols, which no text shows)."""
    return t.meta() if isinstance(t, Tensor) else type(t).__name__


def _kind(t: Any) -> str:
    if not isinstance(t, Tensor):
        return type(t).__name__
    shape, kind = t.meta()
    return f"{kind}{list(shape)}"


def _shape(x: Any) -> Any:
    """The structure of ``x`` without what is in it."""
    if isinstance(x, dict):
        return {k: _shape(v) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return [type(x), *(_shape(v) for v in x)]
    return None


class _Unwritten:
    """Tensors that a function may not write to while gradients are recorded."""

    def __init__(self, where_: str, given: Any) -> None:
        self.where = where_
        tensors = (t for t in tree.leaves(given) if isinstance(t, Tensor))
        self.before = [(t, t._version) for t in tensors if not isinstance(t, Tracer)]

    def check(self) -> None:
        """After the function."""
        for t, version in self.before:
            if t._version != version and thread.grad_enabled:
                raise ConfigError(
                    f"{self.where}: an input of shape {list(t.shape)} is written to in place by a "
                    "function; clone it first (with gradients off, it may be written to)"
                )
