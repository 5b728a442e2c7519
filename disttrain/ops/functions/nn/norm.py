"""Normalisations: layer, rms, batch, group and instance. Torch's names."""

from __future__ import annotations

import math

import numpy as np

from ....context import SLOW, thread
from ....core.annotations import Dims
from ....core.grad_mode import no_grad
from ....core.saved import Complete
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....core.types.wide import is_half
from ....core.writes import opened
from ....errors import ConfigError, DTypeError, ShapeError
from ...primitives import elementwise as el
from ...primitives.elementwise import cast_like, rsqrt, square
from ...primitives.norm import (
    batch_norm_channels,
    batch_norm_known,
    factors,
    group_norm_channels,
    layer_norm_rows,
    rms_norm_rows,
)
from ...primitives.reduce import amax, mean, sum_
from ...primitives.views import reshape
from ..args import in_float32, kinds, one_dim
from ..args import tensor as as_input
from ..inplace import copy_


def _tail(where: str, input: Tensor, normalized_shape: Dims, *affine: Tensor | None) -> tuple:
    shape = normalized_shape
    shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
    given = tuple(as_input(input, where).meta()[0])
    if not shape or given[-len(shape) :] != shape:
        raise ShapeError(
            f"{where}: input of shape {list(given)} given; its last dimensions must be "
            f"normalized_shape={list(shape)}"
        )
    for t, name in zip(affine, ("weight", "bias"), strict=False):
        if t is not None and t.meta()[0] != shape:
            raise ShapeError(
                f"{where}: {name} of shape {list(t.shape)} given; needed {list(shape)}"
            )
    return shape


def check_types(where: str, input: Tensor, *others: Tensor | None) -> None:
    """Parameters and statistics have the type of the input, or float32 beside a half type."""
    kinds(where, "fV", input)
    kind = input.meta()[1]
    for t in others:
        if t is None or t.meta()[1] == kind or (is_half(kind) and t.meta()[1] == np.float32):
            continue
        raise DTypeError(
            f"{where}: mixed dtype: a parameter of {t.dtype!r} given for an input of "
            f"{input.dtype!r}; both need the same type (float32 for inputs of half types)"
        )


def _flat(t: Tensor | None, like: Tensor) -> Tensor | None:
    """An affine parameter as one row, in the type of the input."""
    if t is None:
        return None
    t = t if t.ndim == 1 else reshape(t, shape=(-1,))
    return t if t.meta()[1] == like.meta()[1] else cast_like(t, like)


def _in_rows(input: Tensor, n: int) -> Tensor:
    """``input`` as a matrix, whose rows are the last ``n`` dimensions."""
    shape = tuple(input.shape)
    return reshape(input, shape=(math.prod(shape[:-n]), math.prod(shape[-n:])))


def layer_norm(
    input: Tensor, normalized_shape: Dims, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise over the last dimensions, those of ``normalized_shape`` (Ba et al., 2016)."""
    shape = _tail("layer_norm", input, normalized_shape, weight, bias)
    check_types("layer_norm", input, weight, bias)
    x = input if len(shape) == 1 else _in_rows(input, len(shape))
    out = layer_norm_rows(x, _flat(weight, x), _flat(bias, x), eps=float(eps))[0]
    return out if x is input else reshape(out, shape=tuple(input.shape))


def rms_norm(
    input: Tensor, normalized_shape: Dims, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root mean square over the last dimensions (Zhang, Sennrich, 2019).

    ``eps`` is that of the element type unless given.
    """
    shape = _tail("rms_norm", input, normalized_shape, weight)
    kinds("rms_norm", "fVc", input)
    kind = input.meta()[1]
    if eps is None:
        eps = dtypes.finfo(dtypes.float32 if is_half(kind) else input.dtype).eps
    if kind.kind == "c":
        over = tuple(range(input.ndim - len(shape), input.ndim))
        out = input * rsqrt(mean(square(input), dims=over, keepdim=True) + eps)
        return out if weight is None else el.cast(out * weight, dtype=kind)
    if weight is not None and weight.meta()[1] != kind:
        out = rms_norm(input, normalized_shape, None, eps) * weight
        return el.cast(out, dtype=kind)
    x = input if len(shape) == 1 else _in_rows(input, len(shape))
    out = rms_norm_rows(x, _flat(weight, x), eps=float(eps))[0]
    return out if x is input else reshape(out, shape=tuple(input.shape))


def per_channel(where: str, channels: int, **given: Tensor | None) -> None:
    for name, t in given.items():
        if t is not None and t.meta()[0] != (channels,):
            raise ShapeError(
                f"{where}: {name} of shape {list(t.shape)} given for {channels} channels; needed "
                f"[{channels}]"
            )


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each channel (dimension 1) over the batch and all places (Ioffe, Szegedy, 2015).

    ``training``: by the batch's own statistics, which move the running ones in place by
    ``momentum`` (their variance divides by one less than the number of values).
    """
    if as_input(input, "batch_norm").ndim < 2:
        raise ShapeError(
            f"batch_norm: input of shape {list(input.shape)} given; needed (N, C, ...)"
        )
    check_types("batch_norm", input, running_mean, running_var, weight, bias)
    n, c = input.shape[:2]
    if input.shape.numel():
        per_channel("batch_norm", c, running_mean=running_mean, running_var=running_var,
                     weight=weight, bias=bias)  # fmt: skip
    if not training:
        if running_mean is None or running_var is None:
            raise ConfigError(
                "batch_norm: evaluation needs running_mean and running_var; pass training=True to "
                "use the batch's own statistics"
            )
        return _by_running(input, running_mean, running_var, weight, bias, eps)
    count = input.shape.numel() // max(c, 1)
    if not input.shape.numel():  # of gradients that are sums of nothing
        return _scaled(el.copy(input), weight, bias)
    if count == 1:
        raise ShapeError(
            "batch_norm: expected more than 1 value per channel when training, got input of shape "
            f"{list(input.shape)}; use a larger batch, or .eval()"
        )
    x = input if input.ndim == 3 else reshape(input, shape=(n, c, -1))
    unbiased = count / (count - 1)
    try:
        out, centre, variance = batch_norm_channels(
            x, _flat(weight, x), _flat(bias, x), eps=float(eps)
        )
    except Complete:  # a second run ends here; the statistics move in each
        with no_grad():
            _, centre, variance = batch_norm_channels(x, None, None, eps=float(eps))
            _track_both(running_mean, running_var, centre, variance * unbiased, momentum)
        raise
    if not _moved_at_once(running_mean, running_var, centre, variance, unbiased, momentum):
        with no_grad():
            _track_both(running_mean, running_var, centre.detach(), variance.detach() * unbiased,
                        momentum)  # fmt: skip
    return out if x is input else reshape(out, shape=tuple(input.shape))


def _track_both(
    running_mean: Tensor | None, running_var: Tensor | None, centre: Tensor, variance: Tensor,
    momentum: float,
) -> None:  # fmt: skip
    if running_mean is not None:
        track(running_mean, centre, momentum)
    if running_var is not None:
        track(running_var, variance, momentum)


def _moved_at_once(
    running_mean: Tensor | None, running_var: Tensor | None, centre: Tensor, variance: Tensor,
    unbiased: float, momentum: float,
) -> bool:  # fmt: skip
    """``_track_both`` without the gate, where all are arrays of the host's that lie in order and
    nobody looks on; whether that was so."""
    if thread.mode == SLOW or momentum.__class__ is not float:
        return False
    pairs = []
    for running, value, scale in ((running_mean, centre, 1.0), (running_var, variance, unbiased)):
        if running is None:
            continue
        x, y = running.array, value.array
        plain = x.__class__ is y.__class__ is np.ndarray and x.dtype is y.dtype
        if not plain or x.dtype.char not in "fd" or not (x.flags.carray and y.flags.c_contiguous):
            return False
        pairs.append((running, x, y * scale if value is variance else y))
    for running, x, y in pairs:
        np.add(x * (1 - momentum), y * momentum, out=x)
        storage = running.storage_cell()
        running.watch_results(storage)
        storage.version += 1
    return True


def track(running: Tensor, value: Tensor, momentum: float) -> None:
    """Move a running statistic towards ``value`` in place. Shapes alone (of the meta device) move
    nothing that has values."""
    if value.is_meta and not running.is_meta:
        return
    with opened():
        copy_(running, running * (1 - momentum) + value * momentum)


def _by_running(
    input: Tensor,
    centre: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """One multiplication and one addition per element."""
    given = (input, centre, variance, weight, bias)
    if thread.mode != SLOW and _at_once(given):
        return batch_norm_known(*given, eps=float(eps))
    shape = (-1, *(1,) * (input.ndim - 2))
    scale, shift = (
        cast_like(reshape(t, shape=shape), input)
        for t in factors(centre, variance, weight, bias, eps)
    )
    return input * scale + shift


def _at_once(given: tuple) -> bool:
    """Whether all are arrays of the host's, of one type that there is code for, the first in order;
    and the statistics want no gradients."""
    if given[1].requires_grad or given[2].requires_grad:
        return False
    arrays = [t.__dict__.get("array") for t in given if t is not None]
    kind = getattr(arrays[0], "dtype", None)
    if kind is None or kind.char not in "fd" or not kind.isnative:
        return False
    if any(a.__class__ is not np.ndarray or a.dtype != kind for a in arrays):
        return False
    return arrays[0].size > 0 and arrays[0].flags.c_contiguous


# --- group and instance norm -------------------------------------------------------------------
def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = (-1, *(1,) * (x.ndim - 2))
    if weight is not None:
        x = x * cast_like(reshape(weight, shape=shape), x)
    return x if bias is None else x + cast_like(reshape(bias, shape=shape), x)


def _in_groups(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> Tensor:
    """Each sample normalised over groups of its channels."""
    affine = _flat(weight, input), _flat(bias, input)
    return group_norm_channels(input, *affine, groups=groups, eps=float(eps))[0]


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each sample over groups of channels (Wu, He, 2018)."""
    if as_input(input, "group_norm").ndim < 2:
        raise ShapeError(
            f"group_norm: input of shape {list(input.shape)} given; needed (N, C, ...)"
        )
    c = input.shape[1]
    if num_groups < 1 or c % num_groups:
        raise ShapeError(
            f"group_norm: {c} channels cannot be split into num_groups={num_groups}; the number of "
            "channels must be divisible by it"
        )
    check_types("group_norm", input, weight, bias)
    per_channel("group_norm", c, weight=weight, bias=bias)
    return _in_groups(input, weight, bias, num_groups, eps)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each channel of each sample over its places (Ulyanov et al., 2016)."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    shape = tuple(as_input(input, "instance_norm").shape)
    if len(shape) > 2 and 0 in shape[1:]:
        return el.copy(input)
    places = math.prod(shape[2:])
    if len(shape) < 3 or places == 1:
        raise ShapeError(
            "instance_norm: expected more than 1 spatial element when training, got input of shape "
            f"{list(shape)}"
        )
    check_types("batch_norm", input, running_mean, running_var, weight, bias)
    per_channel("instance_norm", shape[1], running_mean=running_mean, running_var=running_var,
                 weight=weight, bias=bias)  # fmt: skip
    flat = reshape(input, shape=(*shape[:2], places))
    if running_mean is not None and running_var is not None:
        with no_grad():
            x = flat.detach()
            x = el.cast(x, dtype=np.dtype(np.float32)) if is_half(x.meta()[1]) else x
            centre = mean(x, dims=(2,), keepdim=True)
            total = sum_(square(x - centre), dims=(2,), keepdim=False)
            variance = mean(total * (1.0 / (places - 1)), dims=(0,), keepdim=False)
            track(running_mean, mean(centre, dims=(0, 2), keepdim=False), momentum)
            track(running_var, variance, momentum)
    return _in_groups(input, weight, bias, shape[1], eps)


@in_float32
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """``input`` over its p-norm along ``dim`` (over ``eps`` where the norm is smaller)."""
    d = (one_dim(dim, input.ndim, "normalize"),)
    size = el.absolute(input)
    if p == math.inf:
        length = amax(size, dims=d, keepdim=True)
    elif p == 2.0:
        length = el.sqrt(sum_(square(size), dims=d, keepdim=True))
    else:
        length = el.pow_(sum_(el.pow_(size, p), dims=d, keepdim=True), 1.0 / p)
    return input / el.maximum(length, eps)


__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "normalize", "rms_norm"]
