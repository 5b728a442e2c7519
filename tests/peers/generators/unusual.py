"""Calls that few programs make: sizes of 0 and 1, primes, windows, paddings, steps and dilations
that are too large for most, memory that lies in any way, all types, numbers at the ends of them.

A case draws (function, tensors); the function is one of tensors alone, so that it may be compiled,
mapped and differentiated twice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from peers.generators.kernels import numbers

Case = tuple[Callable[..., Any], list[Any]]
FLOATS = ("float32", "float32", "float64", "bfloat16", "float16")
ALL = (*FLOATS, "int8", "uint8", "int16", "int32", "int64", "bool", "complex64")
KEPT = ("float32", "float64", "int32")
_ODD = (
    [np.nan], [np.inf], [-np.inf], [np.nan, np.inf, -np.inf, 0], [0.0, -0.0], [1e-40, -1e-42],
    [-0.0], [np.inf, -np.inf],
)  # fmt: skip


def tensor(T: Any, draw: random.Random, shape: Any, kind: str, odd: float = 0.2) -> Any:
    """Numbers of a type, that lie in memory in some way; with chance ``odd`` some at the ends."""
    wide = kind if kind in ("float64", "bool", "complex64") or "int" in kind else "float32"
    a = numbers(random.Random(draw.random()), tuple(shape), wide)
    rng = np.random.default_rng(draw.getrandbits(32))
    if a.dtype.kind == "f":
        a = np.where(np.isfinite(a), a, 0.5).astype(a.dtype)
        if draw.random() < odd and a.size:
            where = rng.random(a.shape) < draw.choice((0.02, 0.3, 0.9))
            a[where] = rng.choice(draw.choice(_ODD), int(where.sum()))
    return laid(T, T.from_numpy(a).to(getattr(T, kind)), draw)


def laid(T: Any, t: Any, draw: random.Random) -> Any:
    """The same numbers in another order of memory, within a larger one, or of one repeated."""
    how = draw.choice(("in order", "in order", "turned", "within", "channels", "repeated"))
    if how == "turned" and t.ndim:
        order = draw.sample(range(t.ndim), t.ndim)
        return t.permute(*order).contiguous().permute(*np.argsort(order).tolist())
    if how == "within" and t.ndim:
        steps = [draw.randint(1, 3) for _ in range(t.ndim)]
        every = T.zeros([n * s + 3 for n, s in zip(t.shape, steps)], dtype=t.dtype)
        inside = every[tuple(slice(1, 1 + n * s, s) for n, s in zip(t.shape, steps))]
        return inside.copy_(t)
    if how == "channels" and t.ndim == 4:
        return t.contiguous(memory_format=T.channels_last)
    if how == "repeated" and t.ndim and t.shape[0]:
        return t[:1].expand(t.shape)
    return t


def _spatial(draw: random.Random, dims: int, most: int = 0) -> list[int]:
    most = most or {1: 150, 2: 23, 3: 8}[dims]
    return [draw.choice((1, 2, draw.randint(1, most), draw.randint(1, most))) for _ in range(dims)]


def depthwise(T: Any, draw: random.Random) -> Case:
    """Convolutions of single channels, forwards and transposed."""
    dims, channels, each = draw.choice((1, 2, 2, 3)), draw.choice((1, 2, 3, 7)), draw.randint(1, 3)
    kernel = [draw.choice((1, 2, 3, 3, 5, 9)) for _ in range(dims)]
    dilation = [draw.choice((1, 1, 2, 5)) for _ in range(dims)]
    stride = [draw.choice((1, 1, 2, 3, 4, 7, 40)) for _ in range(dims)]
    back = draw.random() < 0.3
    spans = [d * (k - 1) for d, k in zip(dilation, kernel)]
    padding = [draw.choice((0, s // 2, draw.randint(0, s + 4))) for s in spans]
    padding = [min(p, s) for p, s in zip(padding, spans)] if back else padding
    if back:
        stride = [min(s, 4) for s in stride]
    size = [max(n, s + 1 - 2 * p) for n, s, p in zip(_spatial(draw, dims), spans, padding)]
    how: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    if back:
        least = [(n - 1) * s - 2 * p + span + 1 for n, s, p, span
                 in zip(size, stride, padding, spans)]  # fmt: skip
        size = [n if m > 0 else n + 2 * p for n, m, p in zip(size, least, padding)]
    kind = draw.choice(FLOATS)
    odd = 0.2 if "64" in kind or "32" in kind else 0.0  # PyTorch has nan beside inf in half types
    x = tensor(T, draw, (draw.choice((0, 1, 2, 3)), channels, *size), kind, odd)
    shape = (channels, each) if back else (channels * each, 1)
    given = [x, tensor(T, draw, (*shape, *kernel), kind, 0.0)]
    if draw.random() < 0.5:
        given.append(tensor(T, draw, (channels * each,), kind, 0.0))
    run = getattr(T.nn.functional, f"conv{'_transpose' if back else ''}{dims}d")
    return lambda *a: run(*a, **how, groups=channels), given


_SUMS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("any", lambda T, x, d, k: x.sum(d, k)),
    ("float", lambda T, x, d, k: x.mean(d, k)),
    ("exact", lambda T, x, d, k: x.nansum(d, k)),  # PyTorch adds up half types in those
    ("real", lambda T, x, d, k: x.logsumexp(d, k)),
    ("float", lambda T, x, d, k: T.linalg.vector_norm(x, 2, d, k)),
    ("float", lambda T, x, d, k: T.linalg.vector_norm(x, math.inf, d, k)),
    ("any", lambda T, x, d, k: x.sum(d, k, dtype=T.float64)),
    ("real", lambda T, x, d, k: x.amax(d, k)),
    ("any", lambda T, x, d, k: T.count_nonzero(x, d)),
)  # fmt: skip


def reduced(T: Any, draw: random.Random) -> Case:
    """Sums and their like over any dimensions, the last of them too."""
    ndim = draw.randint(1, 4)
    shape = [draw.choice((1, 2, 3, 7, 31, 64, 130)) for _ in range(ndim)]
    shape[-1] = draw.choice((0, 1, 63, 64, 65, 257, 1000, 4096, 5003, 9000))
    while math.prod(shape) > 60_000:
        shape[shape.index(max(shape[:-1] or shape))] //= 2
    which, run = draw.choice(_SUMS)
    kind = draw.choice({"float": FLOATS, "real": ALL[:-2], "exact": KEPT, "any": ALL}[which])
    dims = tuple(sorted(draw.sample(range(ndim), draw.randint(1, ndim))))
    keep = draw.random() < 0.5
    x = tensor(T, draw, shape, kind)
    if draw.random() < 0.2:  # overlapping
        x = x.contiguous().reshape(-1)
        n = x.shape[0]
        x = x.as_strided((max(n // 3, 0), min(3, n)), (1, 1)) if n > 8 else x.reshape(1, -1)
        dims = draw.choice(((0,), (1,), (0, 1)))
    return lambda x: run(T, x, dims, keep), [x]


def _valued(T: Any, x: Any, found: Any, dim: int) -> list[Any]:
    values, places = found
    at = places if places.ndim == x.ndim else places.unsqueeze(dim)
    return [values, x.detach().gather(dim, at)]


_ORDERS: tuple[Callable[..., Any], ...] = (
    lambda T, x, d, k: T.topk(x, k, d),
    lambda T, x, d, k: T.topk(x, k, d, largest=False),
    lambda T, x, d, k: T.median(x, d),
    lambda T, x, d, k: T.nanmedian(x, d) if x.is_floating_point() else T.median(x, d),
    lambda T, x, d, k: T.kthvalue(x, max(k, 1), d),
    lambda T, x, d, k: T.median(x, d, keepdim=True),
    lambda T, x, d, k: T.max(x, d),
    lambda T, x, d, k: T.min(x, d),
)  # fmt: skip


def ranked(T: Any, draw: random.Random) -> Case:
    """The first of an order, and the one in its middle."""
    shape = [draw.choice((1, 2, 3, 17)) for _ in range(draw.randint(1, 3))]
    at = draw.randrange(len(shape))
    shape[at] = draw.choice((1, 2, 3, 31, 32, 33, 64, 129, 1000, 4097))
    x = tensor(T, draw, shape, draw.choice(ALL[:-2]), 0.4)
    x = x.clone() if 0 in x.stride() else x  # PyTorch selects wrong ones of those
    k, run = (
        draw.randint(0, min(shape[at], draw.choice((1, 5, 32, 33, 5000)))),
        draw.choice(_ORDERS),
    )
    unlike = draw.random() < 0.5 and x.dtype in (T.float32, T.float64)
    if unlike:  # which of equal numbers is taken is not said
        order = np.random.default_rng(draw.getrandbits(32)).permutation(math.prod(shape))
        x = T.from_numpy(order.reshape(shape)).to(x.dtype)
    seen = (lambda x: x) if unlike else lambda x: x.detach()
    return lambda x: _valued(T, x, run(T, seen(x), at, k), at), [x]


def pooled(T: Any, draw: random.Random) -> Case:
    """Means and largest numbers of windows of any size."""
    dims, F = draw.choice((1, 2, 2, 3)), T.nn.functional
    size = _spatial(draw, dims, {1: 400, 2: 40, 3: 12}[dims])
    kind = draw.choice(FLOATS)
    x = tensor(T, draw, (draw.choice((0, 1, 2)), draw.choice((1, 2, 5)), *size), kind)
    kernel = [draw.randint(1, n) for n in size]
    how: dict[str, Any] = {
        "kernel_size": kernel,
        "stride": [draw.choice((1, 2, 5, k)) for k in kernel],
        "padding": [draw.randint(0, k // 2) for k in kernel],
        "ceil_mode": draw.random() < 0.4,
    }
    name = draw.choice(("max", "max", "avg", "avg", "adaptive_avg", "adaptive_max", "lp"))
    if name.startswith("adaptive"):
        to = [draw.choice((1, 2, n, draw.randint(1, 9), 2 * n)) for n in size]
        return lambda x: getattr(F, f"{name}_pool{dims}d")(x, to), [x]
    if name == "lp":
        how.pop("padding")
        how["kernel_size"], how["stride"] = kernel[0], how["stride"][0]
        return lambda x: F.lp_pool1d(x.abs().flatten(2) + 0.5, 2.0, **how), [x]
    if name == "max":
        how["dilation"] = [draw.choice((1, 1, max(1, (n + 2 * p - 1) // max(k - 1, 1))))
                           for n, p, k in zip(size, how["padding"], kernel)]  # fmt: skip
        # PyTorch writes outside of the gradient for windows without a number
        how["padding"] = [p if d == 1 else 0 for p, d in zip(how["padding"], how["dilation"])]
    else:
        how["count_include_pad"] = draw.random() < 0.5
        if dims > 1 and draw.random() < 0.3:
            how["divisor_override"] = draw.choice((1, 3, -2))
    return lambda x: getattr(F, f"{name}_pool{dims}d")(x, **how), [x]


def resized(T: Any, draw: random.Random) -> Case:
    """Images in any size, by all modes."""
    dims = draw.choice((1, 2, 2, 3))
    size = _spatial(draw, dims, {1: 40, 2: 15, 3: 6}[dims])
    mode = draw.choice(("nearest", "nearest-exact", "area", "linear", "cubic"))
    mode = {"linear": ("linear", "bilinear", "trilinear")[dims - 1],
            "cubic": "bicubic" if dims == 2 else "nearest"}.get(mode, mode)  # fmt: skip
    how: dict[str, Any] = {"mode": mode}
    if draw.random() < 0.6:
        how["size"] = [draw.choice((1, 2, n, 2 * n, 3 * n, draw.randint(1, 20))) for n in size]
    else:
        how["scale_factor"] = [draw.choice((1.0, 0.5, 2.0, 1.3, 3.0, 0.77)) for _ in size]
        how["scale_factor"] = [s if int(n * s) else 1.0 for n, s in zip(size, how["scale_factor"])]
        if mode != "area" and draw.random() < 0.4:
            how["recompute_scale_factor"] = True
    if "linear" in mode or "cubic" in mode:
        how["align_corners"] = draw.random() < 0.5
        # PyTorch takes images of one column for other ones
        if dims == 2 and draw.random() < 0.4 and how.get("size", [2])[-1] > 1 < size[-1]:
            how["antialias"] = True
    kind = draw.choice(FLOATS)
    x = tensor(T, draw, (draw.choice((0, 1, 2)), draw.choice((1, 3)), *size), kind, 0.0)
    return lambda x: T.nn.functional.interpolate(x, **how), [x]


def normalised(T: Any, draw: random.Random) -> Case:
    """Normalisations of what is empty, of single places, of channels in any order."""
    F, kind = T.nn.functional, draw.choice(FLOATS[:4])
    groups, each = draw.choice((1, 2, 5)), draw.choice((1, 2, 3))
    shape = (draw.choice((0, 1, 3)), groups * each, *_spatial(draw, draw.randint(0, 3), 7))
    x = tensor(T, draw, shape, kind, 0.0)
    # PyTorch reads parameters that are repeated as if they were in order
    w, b = (tensor(T, draw, shape[1:2], kind, 0.0).contiguous() for _ in range(2))
    which = draw.choice(("group", "group", "layer", "rms", "batch", "local"))
    if which == "layer":
        w, b = (tensor(T, draw, shape[1:], kind, 0.0).contiguous() for _ in range(2))
        return lambda x, w, b: F.layer_norm(x, shape[1:], w, b, 0.1), [x, w, b]
    if which == "rms":
        w = tensor(T, draw, shape[1:], kind, 0.0)
        return lambda x, w: F.rms_norm(x, shape[1:], w, 0.1), [x, w]
    if which == "batch" and shape[0] * math.prod(shape[2:]) > 1:
        return lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=0.1), [x, w, b]
    if which == "local" and len(shape) > 2:
        return lambda x: F.local_response_norm(x, 3), [x]
    return lambda x, w, b: F.group_norm(x, groups, w, b, 0.1), [x, w, b]


def products(T: Any, draw: random.Random) -> Case:
    """Linear layers of few and of many rows, in all floating types."""
    m, k, n = (
        draw.choice((0, 1, 2, 3, 17)),
        draw.choice((1, 2, 63, 64, 130)),
        draw.choice((1, 33, 100)),
    )
    kind = draw.choice(FLOATS)
    given = [tensor(T, draw, s, kind, 0.0) for s in ((m, k), (n, k), (n,))]
    if draw.random() < 0.5:
        return T.nn.functional.linear, given
    return lambda x, w: x @ w.t(), given[:2]


CASES: dict[str, Callable[..., Case]] = {
    "depthwise": depthwise, "reduced": reduced, "ranked": ranked, "pooled": pooled,
    "resized": resized, "normalised": normalised, "products": products,
}  # fmt: skip
