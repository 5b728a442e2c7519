"""``vmap`` with JAX's conventions: trees of axes, and what is said of sizes that do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import disttrain as dt

from ... import func
from ...core.tensor import Tensor
from ...func.vmap import BatchTracer
from . import tree
from .errors import short
from .flat import Flat, check_callable, named

_registry = tree.default_registry


def vmap(
    fun: Callable, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None,
    axis_size: int | None = None, spmd_axis_name: Any = None, sum_match: bool = False,
) -> Callable:  # fmt: skip
    """``fun`` over a batch: ``in_axes`` and ``out_axes`` are trees of axes (None: no batch)."""
    check_callable(fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or isinstance(in_axes, (int, tuple))):
        raise TypeError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
            f"positional arguments passed to the function, but got {in_axes}."
        )

    def vmap_f(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                "vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                f"positional arguments passed to the function, but got len(in_axes)={len(in_axes)},"
                f" len(args)={len(args)}"
            )
        flat = Flat(fun, args, kwargs)
        dims = _prefix("in_axes", in_axes, args) + [0] * flat.of.parts[1].num_leaves
        size = _size(fun, flat, args, kwargs, dims, axis_size)
        where = [None if d is None else d % a.ndim for d, a in zip(dims, flat.given, strict=True)]
        places: list = []

        def of(*tensors: Tensor) -> list[Tensor]:
            outs = flat(*tensors)
            places[:] = _out_axes(out_axes, flat, outs)
            return outs

        named_axis = {} if axis_name is None else {"axis_name": axis_name}
        run = func.vmap(
            of, tuple(where), places, "different", axis_size=size, **named_axis
        )  # fmt: skip
        return flat.tree(run(*flat.tensors))

    return named(vmap_f, fun)


def _prefix(what: str, axes: Any, value: Any, transform: str = "vmap") -> list:
    try:
        return tree.default_registry.prefix(axes, value, f"{transform} {what}")
    except ValueError as error:
        raise ValueError(
            f"{transform} {what} specification must be a tree prefix of the corresponding value; "
            f"\n  Mismatch details (1 found):\n  {error}"
        ) from None


def _size(
    fun: Callable, flat: Flat, args: tuple, kwargs: dict, dims: list, given: int | None
) -> int:
    if not flat.given and given is None:
        raise ValueError(
            "vmap wrapped function must be passed at least one argument containing an array or "
            f"axis_size must be specified, got empty *args={args} and **kwargs={kwargs}"
        )
    for a, d in zip(flat.given, dims, strict=True):
        if d is not None and not -a.ndim <= d < a.ndim:
            least = d + 1 if d >= 0 else -d
            raise ValueError(
                f"vmap was requested to map its argument along axis {d}, which implies that its "
                f"rank should be at least {least}, but is only {a.ndim} (its shape is {a.shape})"
            )
    sizes = {a.shape[d] for a, d in zip(flat.given, dims, strict=True) if d is not None}
    if given is not None:
        sizes.add(given)
    if not sizes:
        raise ValueError(
            "vmap must have at least one non-None value in in_axes or axis_size must be specified"
        )
    if len(sizes) > 1:
        raise ValueError(_inconsistent(fun, flat, args, kwargs, dims, given))
    return sizes.pop()


def _inconsistent(
    fun: Callable, flat: Flat, args: tuple, kwargs: dict, dims: list, given: int | None
) -> str:
    try:
        bound = list(inspect.signature(fun).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        bound = []
    lines = [] if given is None else [f"  * the `axis_size` argument was {given}"]
    paths = _registry.paths((args, kwargs))
    for (path, _), a, d in zip(paths, flat.given, dims, strict=True):
        if d is not None:
            i: Any = getattr(path[1], "idx", None)
            rest = "".join(map(str, path[2:]))
            known = i is not None and i < len(bound)
            said = f"argument {bound[i]}{rest}" if known else f"args{''.join(map(str, path[1:]))}"
            lines.append(
                f"  * one axis had size {a.shape[d]}: axis {d} of {said} of type {short(a)}"
            )
    return "vmap got inconsistent sizes for array axes to be mapped:\n" + ";\n".join(lines)


def _out_axes(out_axes: Any, flat: Flat, outs: list) -> list:
    """One axis per result; checked."""
    result = flat.form.build(iter(range(len(outs))))
    found = _prefix("out_axes", out_axes, result)
    for t, d in zip(outs, found, strict=True):
        batched = isinstance(t, BatchTracer) and t.bdim is not None
        if d is None and batched and t.interp is dt.context.thread.stack[-1]:
            raise ValueError(
                f"at vmap out_axes, got axis spec None but output was batched on axis {t.bdim}"
            )
        n = len(t.meta()[0]) + 1
        if d is not None and not -n <= d < n:
            raise ValueError(f"axis {d} is out of bounds for array of dimension {n}")
    return found
