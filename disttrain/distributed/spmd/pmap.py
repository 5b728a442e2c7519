"""``pmap``: a function whose examples are devices: those of a ``vmap``, or ranks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ...context import thread
from ...core.tensor import Tensor
from ...errors import ConfigError, ShapeError
from ...func.levels import settle
from ...func.spread import Ranks
from ...func.vmap import Batch
from ..groups import state
from . import inventory as known


def pmap(
    func: Callable, axis_name: Hashable, in_axes: Sequence, out_axes: Callable, size: int
) -> Callable:
    """``func`` of a list of tensors, which gives one, on ``size`` devices. ``in_axes``: along which
    dimension of each tensor the devices' parts lie, of which this process brings its devices'
    (None: all get the same); ``out_axes(results)`` says it of the results."""

    def run(*tensors: Tensor) -> list[Tensor]:
        inside = any(isinstance(each, Ranks) for each in thread.stack)  # ranks are taken, then
        ranks = known.spread() and not inside
        level: Any = (
            Ranks(state.group_or_default(), axis_name)
            if ranks
            else Batch(size, "different", axis_name)
        )
        pairs = list(zip(tensors, in_axes, strict=True))
        own = [t.squeeze(d) if ranks and d is not None else t for t, d in pairs]
        with level.running():
            given = [
                x if d is None else level.wrap(x, 0 if ranks else d % t.ndim)
                for x, (t, d) in zip(own, pairs, strict=True)
            ]
            outs = settle(func(*given))
            ends = out_axes(outs)
            return [_left(level, o, d, ranks) for o, d in zip(outs, ends, strict=True)]

    return run


def size_of(
    name: str, shapes: Sequence[tuple], axes: Sequence[int | None], given: int | None,
    limit: int,
) -> int:  # fmt: skip
    """On how many devices a function of arrays of these shapes runs, of at most ``limit``."""
    pairs = [(s, d) for s, d in zip(shapes, axes, strict=True) if d is not None]
    for shape, d in pairs:
        if not -len(shape) <= d < len(shape):
            raise ShapeError(
                f"pmap was requested to map its argument along axis {d}, which implies that its "
                f"rank should be at least {d + 1 if d >= 0 else -d}, but is only {len(shape)} (its "
                f"shape is {shape})"
            )
    sizes = [shape[d] for shape, d in pairs]
    if not sizes:
        raise ConfigError("pmap requires at least one argument with a mapped axis.")
    if len(set(sizes)) > 1:
        raise ShapeError(
            f"pmap got inconsistent sizes for array axes to be mapped: the sizes along them are "
            f"{sizes}"
        )
    if given is not None and given != sizes[0]:
        raise ConfigError(
            f"Specified axis_size {given} doesn't match received axis_size {sizes[0]}."
        )
    if sizes[0] > limit:
        raise ConfigError(
            f"compiling computation `{name}` that requires {sizes[0]} logical devices, but only "
            f"{limit} XLA devices are available (num_replicas={sizes[0]})"
        )
    return sizes[0]


def _left(level: Any, out: Any, axis: int | None, ranks: bool) -> Any:
    if axis is not None:
        return level.leave(out, 0).unsqueeze(axis) if ranks else level.leave(out, axis)
    if level.owns(out) and level.differs(out):
        raise ConfigError("at pmap out_axes, got axis spec None but output was batched on axis 0")
    return out.inner if level.owns(out) else out
