"""``vmap`` of functions of trees: trees of axes, and what is said of sizes that do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...context import thread
from ..structured_bodies import Border
from ..vmap import BatchTracer, vmap
from .flat import Flat, check_callable, named


class Batches:
    """The function, for trees with what ``border`` makes of tensors."""

    def __init__(self, border: Border) -> None:
        self.border = border

    def vmap(
        self, fun: Callable, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None,
        axis_size: int | None = None, spmd_axis_name: Any = None, sum_match: bool = False,
    ) -> Callable:  # fmt: skip
        """``fun`` over a batch: ``in_axes`` and ``out_axes`` are trees of axes (None: no batch)."""
        check_callable(fun)
        axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        if not (axes is None or isinstance(axes, (int, tuple))):
            raise TypeError(
                "vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                f"positional arguments passed to the function, but got {axes}."
            )

        def vmap_f(*args: Any, **kwargs: Any) -> Any:
            if isinstance(axes, tuple) and len(axes) != len(args):
                raise ValueError(
                    "vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                    f"positional arguments passed to the function, but got len(in_axes)={len(axes)}"
                    f", len(args)={len(args)}"
                )
            flat = Flat(self.border, fun, args, kwargs)
            dims = _prefix(flat, "in_axes", axes, args) + [0] * flat.of.parts[1].num_leaves
            size = _size(flat, args, kwargs, dims, axis_size)
            pairs = zip(dims, flat.avals, strict=True)
            where = [None if d is None else d % len(a.shape) for d, a in pairs]
            places: list = []

            def of(*tensors: Any) -> list:
                outs = flat(*tensors)
                places[:] = _out_axes(out_axes, flat, outs)
                return outs

            name = {} if axis_name is None else {"axis_name": axis_name}
            run = vmap(of, tuple(where), places, "different", axis_size=size, **name)
            return flat.tree(run(*flat.tensors))

        return named(vmap_f, fun)


def _prefix(flat: Flat, what: str, axes: Any, value: Any) -> list:
    try:
        return flat.border.registry.prefix(axes, value, f"vmap {what}")
    except ValueError as error:
        raise ValueError(
            f"vmap {what} specification must be a tree prefix of the corresponding value; "
            f"\n  Mismatch details (1 found):\n  {error}"
        ) from None


def _size(flat: Flat, args: tuple, kwargs: dict, dims: list, given: int | None) -> int:
    if not flat.avals and given is None:
        raise ValueError(
            "vmap wrapped function must be passed at least one argument containing an array or "
            f"axis_size must be specified, got empty *args={args} and **kwargs={kwargs}"
        )
    mapped = [(a, d) for a, d in zip(flat.avals, dims, strict=True) if d is not None]
    for a, d in mapped:
        n = len(a.shape)
        if not -n <= d < n:
            raise ValueError(
                f"vmap was requested to map its argument along axis {d}, which implies that its "
                f"rank should be at least {d + 1 if d >= 0 else -d}, but is only {n} (its shape is "
                f"{a.shape})"
            )
    sizes = {a.shape[d] for a, d in mapped} | (set() if given is None else {given})
    if not sizes:
        raise ValueError(
            "vmap must have at least one non-None value in in_axes or axis_size must be specified"
        )
    if len(sizes) > 1:
        raise ValueError(_inconsistent(flat, args, kwargs, dims, given))
    return sizes.pop()


def _inconsistent(flat: Flat, args: tuple, kwargs: dict, dims: list, given: int | None) -> str:
    try:
        bound = list(inspect.signature(flat.fun).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        bound = []
    lines = [] if given is None else [f"  * the `axis_size` argument was {given}"]
    paths = flat.border.registry.paths((args, kwargs))
    for (path, _), a, d in zip(paths, flat.avals, dims, strict=True):
        if d is not None:
            i: Any = getattr(path[1], "idx", None)
            rest = "".join(map(str, path[2:]))
            known = i is not None and i < len(bound)
            said = f"argument {bound[i]}{rest}" if known else f"args{''.join(map(str, path[1:]))}"
            lines.append(f"  * one axis had size {a.shape[d]}: axis {d} of {said} of type {a}")
    return "vmap got inconsistent sizes for array axes to be mapped:\n" + ";\n".join(lines)


def _out_axes(out_axes: Any, flat: Flat, outs: list) -> list:
    """One axis per result; checked."""
    result = flat.form.build(iter(range(len(outs))))
    found = _prefix(flat, "out_axes", out_axes, result)
    for t, d in zip(outs, found, strict=True):
        batched = isinstance(t, BatchTracer) and t.bdim is not None
        if d is None and batched and t.interp is thread.stack[-1]:
            raise ValueError(
                f"at vmap out_axes, got axis spec None but output was batched on axis {t.bdim}"
            )
        n = len(t.meta()[0]) + 1
        if d is not None and not -n <= d < n:
            raise ValueError(f"axis {d} is out of bounds for array of dimension {n}")
    return found


__all__ = ["Batches"]
