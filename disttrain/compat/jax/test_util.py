"""``jax.test_util``: derivatives beside differences of the function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import numpy as jnp
from . import random, tree
from .transforms import jvp, vjp

_TOLERANCES = {"float16": 1e-1, "bfloat16": 1e-1, "float32": 1e-2, "float64": 1e-5}


def check_jvp(
    f: Callable, f_jvp: Callable, args: tuple, atol: float | None = None,
    rtol: float | None = None, eps: float = 1e-3, err_msg: str = "",
) -> None:  # fmt: skip
    """Raise ``AssertionError`` where ``f_jvp(args, tangents)`` is not the value of ``f`` and what a
    step of ``eps`` along a random direction changes."""
    direction = _direction(args, 0)
    out, moved = f_jvp(args, direction)
    _close(f(*args), out, atol, rtol, err_msg)
    _close(_difference(f, args, direction, eps), moved, atol, rtol, err_msg)


def check_vjp(
    f: Callable, f_vjp: Callable, args: tuple, atol: float | None = None,
    rtol: float | None = None, eps: float = 1e-3, err_msg: str = "",
) -> None:  # fmt: skip
    """The same of ``f_vjp(*args) -> (value, pull back)``: for a random cotangent."""
    out, pull = f_vjp(*args)
    _close(f(*args), out, atol, rtol, err_msg)
    direction, cotangent = _direction(args, 0), _direction(out, 1)
    moved = _difference(f, args, direction, eps)
    _close(_inner(cotangent, moved), _inner(pull(cotangent), direction), atol, rtol, err_msg)


def check_grads(
    f: Callable, args: Sequence, order: int, modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None, rtol: float | None = None, eps: float = 1e-3,
) -> None:  # fmt: skip
    """``check_jvp`` and ``check_vjp`` of ``f`` and of its derivatives up to ``order``."""
    args = tuple(args)
    if "fwd" in modes:
        _check_forward(f, args, order, atol, rtol, eps)
    if "rev" in modes:
        _check_reverse(f, args, order, atol, rtol, eps)


def _check_forward(f: Callable, args: tuple, order: int, *limits: Any) -> None:
    check_jvp(f, lambda at, along: jvp(f, at, along), args, *limits, err_msg="JVP")
    if order > 1:
        along = _direction(args, 2)
        _check_forward(lambda *a: jvp(f, a, along)[1], args, order - 1, *limits)


def _check_reverse(f: Callable, args: tuple, order: int, *limits: Any) -> None:
    check_vjp(f, lambda *a: vjp(f, *a), args, *limits, err_msg="VJP")
    if order > 1:
        cotangent = _direction(f(*args), 3)
        _check_reverse(lambda *a: vjp(f, *a)[1](cotangent), args, order - 1, *limits)


def _direction(values: Any, seed: int) -> Any:
    leaves, form = tree.tree_flatten(values)
    keys = random.split(random.key(seed), max(1, len(leaves)))
    arrays = [jnp.asarray(x) for x in leaves]
    drawn = [random.normal(k, x.shape, x.dtype) for k, x in zip(keys, arrays)]
    return tree.tree_unflatten(form, drawn)


def _difference(f: Callable, args: tuple, direction: Any, eps: float) -> Any:
    def at(step: float) -> Any:
        return f(*tree.tree_map(lambda x, d: x + step * d, args, direction))

    return tree.tree_map(lambda a, b: (a - b) / eps, at(0.5 * eps), at(-0.5 * eps))


def _inner(a: Any, b: Any) -> Any:
    pairs = zip(tree.tree_leaves(a), tree.tree_leaves(b), strict=True)
    return sum(jnp.vdot(x, y) for x, y in pairs)


def _close(want: Any, got: Any, atol: float | None, rtol: float | None, err_msg: str) -> None:
    for a, b in zip(tree.tree_leaves(want), tree.tree_leaves(got), strict=True):
        kind = jnp.asarray(b).dtype.name
        least = _TOLERANCES.get(kind, 0.0)
        limits = {
            "atol": least if atol is None else atol, "rtol": least if rtol is None else rtol
        }  # fmt: skip
        if not bool(jnp.allclose(jnp.asarray(a), jnp.asarray(b), **limits)):
            raise AssertionError(f"{err_msg}: {b} computed, {a} by differences ({limits})")
