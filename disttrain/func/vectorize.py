"""A function of core dimensions, named by a signature as NumPy's generalized ufuncs are, over all
further dimensions: these are broadcast against each other and mapped by ``vmap``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..ops import api as ops
from .vmap import vmap

_NAME = r"[A-Za-z_][A-Za-z_0-9]*|\d+"
_LIST = rf"\((?:\s*(?:{_NAME})\s*(?:,\s*(?:{_NAME})\s*)*,?)?\s*\)"
_SIGNATURE = re.compile(rf"^\s*{_LIST}(?:\s*,\s*{_LIST})*\s*->\s*{_LIST}(?:\s*,\s*{_LIST})*\s*$")

Core = list[tuple[str, ...]]


def parsed(signature: str) -> tuple[Core, Core]:
    """The core dimensions of arguments and results: ``"(n,m),(m)->(n)"``."""
    if not _SIGNATURE.match(signature):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    sides = signature.split("->")
    return tuple(  # type: ignore[return-value]
        [tuple(re.findall(_NAME, part)) for part in re.findall(_LIST, side)] for side in sides
    )


def vectorized(fn: Callable, tensors: list[Tensor], signature: str | None) -> Any:
    """``fn`` of every element (or of the core dimensions of ``signature``) of ``tensors``."""
    cores, results = parsed(signature) if signature else ([()] * len(tensors), [])
    if len(cores) != len(tensors):
        raise TypeError(
            f"wrong number of positional arguments: expected {len(cores)}, got {len(tensors)}"
        )
    sizes: dict[str, int] = {}
    outer = []
    for t, core in zip(tensors, cores):
        shape = tuple(t.shape)
        if len(shape) < len(core):
            raise ValueError(
                f"input with shape {shape} does not have enough dimensions for all core dimensions "
                f"{core}"
            )
        outer.append(shape[: len(shape) - len(core)])
        for name, n in zip(core, shape[len(shape) - len(core) :]):
            if sizes.setdefault(name, int(name) if name.isdigit() else n) != n:
                raise ValueError(
                    f"inconsistent size for core dimension {name!r}: {n} vs {sizes[name]}"
                )
    checked = _checking(fn, results, sizes) if signature else fn
    return _mapped(checked, tensors, outer)


def per_element(fn: Callable, excluded: Any, tensors: Callable, signature: str | None) -> Callable:
    """``fn(*args, **named)`` of single elements for whole arrays, but for arguments in ``excluded``
    (by place or name). ``tensors``: makes ``fn`` of arrays a function of tensors, and arrays
    tensors: ``tensors(fn) -> fn``, ``tensors(array) -> tensor``."""

    def run(*args: Any, **given: Any) -> Any:
        fixed = {k: a for k, a in enumerate(args) if k in excluded}
        free = [a for k, a in enumerate(args) if k not in excluded]
        kept = {k: v for k, v in given.items() if k in excluded}
        named = [k for k in given if k not in excluded]

        def call(*xs: Any) -> Any:
            queue = iter(xs[: len(free)])
            full = [fixed[k] if k in fixed else next(queue) for k in range(len(args))]
            return fn(*full, **dict(zip(named, xs[len(free) :])), **kept)

        given_now = [tensors(x) for x in (*free, *(given[k] for k in named))]
        return vectorized(tensors(call), given_now, signature)

    return run


def along_axis(fn: Callable, axis: int, x: Tensor) -> Any:
    """``fn`` of every line of ``x`` along ``axis``; its dimensions stand in that one's place."""
    d = axis + x.ndim if axis < 0 else axis
    mapped = fn
    for _ in range(x.ndim - 1):
        mapped = vmap(mapped, in_dims=0, out_dims=0)
    out = mapped(ops.movedim(x, d, -1))
    if out.ndim >= x.ndim:
        more = out.ndim - (x.ndim - 1)
        out = ops.movedim(out, tuple(range(-more, 0)), tuple(range(d, d + more)))
    return out


def _checking(fn: Callable, results: Core, sizes: dict[str, int]) -> Callable:
    """``fn``, whose results are held against the signature."""

    def run(*args: Tensor) -> Any:
        out = fn(*args)
        parts = out if isinstance(out, tuple) else (out,)
        if len(parts) != len(results):
            raise TypeError(f"wrong number of outputs: expected {len(results)}, got {len(parts)}")
        for part, core in zip(parts, results):
            want = [sizes.setdefault(n, s) for n, s in zip(core, part.shape)]
            if len(core) != part.ndim or want != list(part.shape):
                raise ValueError(
                    f"output shape {tuple(part.shape)} does not match core dimensions {core}"
                )
        return out

    return run


def _mapped(fn: Callable, tensors: list[Tensor], outer: list[tuple[int, ...]]) -> Any:
    common = tuple(ops.broadcast_shapes(*outer)) if outer else ()
    mapped, given = fn, list(tensors)
    plan: list[tuple[int | None, ...]] = []
    for d in range(len(common)):
        places: list[int | None] = []
        for shape in outer:
            at = d - (len(common) - len(shape))
            places.append(None if at < 0 or (shape[at] == 1 and common[d] != 1) else 0)
        plan.append(tuple(places))
    for k, shape in enumerate(outer):  # sizes of 1 that others stretch are no dimension
        kept = [n for at, n in enumerate(shape) if plan[at + len(common) - len(shape)][k] == 0]
        given[k] = given[k].reshape([*kept, *given[k].shape[len(shape) :]])
    for dims in reversed(plan):
        if all(d is None for d in dims):
            mapped = _alone(mapped)
        else:
            mapped = vmap(mapped, in_dims=dims, out_dims=0, randomness="different")
    return mapped(*given)


def _alone(fn: Callable) -> Callable:
    """A dimension of size 1 that no argument has."""

    def run(*args: Tensor) -> Any:
        out = fn(*args)
        if isinstance(out, tuple):
            return tuple(ops.unsqueeze(o, 0) for o in out)
        return ops.unsqueeze(out, 0)

    return run
