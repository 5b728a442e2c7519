"""Derivatives beside differences: ``check_grads`` takes random directions, forward and in reverse,
of a function and of its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.random import Generator
from ..core.tensor import Tensor
from ..ops.api import allclose, randn
from .jvp import jvp
from .reverse import vjp

_LEAST = {"float16": 1e-1, "bfloat16": 1e-1, "float32": 1e-2, "float64": 1e-5}


def check_grads(
    fn: Callable[..., Sequence[Tensor]], args: Sequence[Tensor], order: int,
    modes: Sequence[str] = ("fwd", "rev"), atol: float | None = None, rtol: float | None = None,
    eps: float = 1e-3,
) -> None:  # fmt: skip
    """Raise ``AssertionError`` where the derivatives of ``fn(*args)``, a list of tensors, up to
    ``order``, are not what a step of ``eps`` changes."""
    for mode in modes:
        check = {"fwd": _forward, "rev": _reverse}[mode]
        _check(check, fn, list(args), order, {"atol": atol, "rtol": rtol}, eps)


def _check(check: Callable, fn: Callable, args: list, order: int, limits: dict, eps: float) -> None:
    along = _directions(args, order)
    nudged = [
        [x + step * d for x, d in zip(args, along, strict=True)] for step in (eps / 2, -eps / 2)
    ]
    above, below = (fn(*values) for values in nudged)
    moved = [(a - b) / eps for a, b in zip(above, below, strict=True)]
    derivative = check(fn, args, along, moved, limits)
    if order > 1:
        _check(check, derivative, args, order - 1, limits, eps)


def _forward(fn: Callable, args: list, along: list, moved: list, limits: dict) -> Callable:
    def derivative(*values: Tensor) -> list:
        return list(jvp(lambda *v: tuple(fn(*v)), tuple(values), tuple(along))[1])

    for got, want in zip(derivative(*args), moved, strict=True):
        _close("forward", got, want, limits)
    return derivative


def _reverse(fn: Callable, args: list, along: list, moved: list, limits: dict) -> Callable:
    cotangents = _directions(moved, 7)

    def derivative(*values: Tensor) -> list:
        return list(vjp(lambda *v: tuple(fn(*v)), *values)[1](tuple(cotangents)))

    got: Any = sum((a * b).sum() for a, b in zip(derivative(*args), along, strict=True))
    _close("reverse", got, sum((a * b).sum() for a, b in zip(cotangents, moved)), limits)
    return derivative


def _directions(like: Sequence[Tensor], seed: int) -> list[Any]:
    source = Generator().manual_seed(seed)
    return [randn(tuple(x.shape), generator=source, dtype=x.dtype) for x in like]


def _close(how: str, got: Any, want: Any, limits: dict) -> None:
    least = _LEAST.get(got.dtype.name, 0.0)
    bounds = {name: least if given is None else given for name, given in limits.items()}
    if not bool(allclose(got, want.to(got.dtype), **bounds)):
        raise AssertionError(f"{how}: {got} computed, {want} by differences ({bounds})")
