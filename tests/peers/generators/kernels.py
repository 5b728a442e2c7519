"""Drawn calls of generated kernels: copies in another order, running sums, rows added by number,
convolutions, orders, recurrent networks, products of few rows, normalisations, resizing.

A case is a pair (what to do, arrays). Arrays have any sizes, also none, any order of axes, steps
and directions; numbers are also nan, inf and equal ones.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

KINDS = ("float32", "float64", "int64", "int32", "int16", "uint8", "bool", "float16", "complex64")
_SIZES = (0, 1, 2, 3, 7, 16, 31, 40, 64, 130, 257)


def _sizes(draw: random.Random, most: int) -> list[int]:
    sizes = [draw.choice(_SIZES) for _ in range(draw.randint(1, 4))]
    while math.prod(sizes) > most:
        sizes[sizes.index(max(sizes))] //= 2
    return sizes


def numbers(draw: random.Random, shape: Any, kind: str) -> np.ndarray:
    """Numbers of a type, some of them equal, and of floats some that are no numbers."""
    rng = np.random.default_rng(draw.getrandbits(32))
    if kind == "bool":
        return rng.random(shape) < 0.5
    if "int" in kind:
        return rng.integers(0 if kind == "uint8" else -9, 10, shape).astype(kind)
    a = np.asarray(rng.normal(size=shape) * draw.choice([0.5, 1.0, 3.0]))
    a = np.round(a, 1) if draw.random() < 0.3 else a
    if a.size and draw.random() < 0.2:
        a.flat[rng.integers(0, a.size, 3)] = rng.choice([np.nan, np.inf, -np.inf, 0.0], 3)
    return a.astype(kind)


def _view(T: Any, a: np.ndarray, draw: random.Random) -> Any:
    """The array as a tensor, its axes in another order and some of them in steps."""
    t = T.from_numpy(a.copy()).permute(*draw.sample(range(a.ndim), a.ndim))
    for axis in range(t.ndim):
        if draw.random() < 0.2:
            index = [slice(None)] * t.ndim
            index[axis] = slice(draw.randint(0, 2), None, draw.randint(1, 3))
            t = t[tuple(index)]
    return t


def _laid(T: Any, a: np.ndarray, draw: random.Random) -> Any:
    """The same numbers with their axes in another order, within a larger array or backwards in
    memory."""
    how = draw.choice(("in order", "turned", "within", "backwards"))
    if how == "turned":
        order = draw.sample(range(a.ndim), a.ndim)
        a = np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order))
    elif how == "within":
        every = np.full([n + 3 for n in a.shape], np.nan, a.dtype)
        inside = every[tuple(slice(1, 1 + n) for n in a.shape)]
        inside[...] = a
        a = inside
    elif how == "backwards" and T.__name__ != "torch":  # which has no such steps
        a = np.flip(np.flip(a, -1).copy(), -1)
    return T.from_numpy(a)


def _odd(draw: random.Random, a: np.ndarray) -> np.ndarray:
    """Some of the numbers, few or most, become nan, infinite, zeros of both signs."""
    rng = np.random.default_rng(draw.getrandbits(32))
    values = draw.choice(([np.nan], [np.inf], [-np.inf], [np.nan, np.inf, -np.inf, 0], [0.0, -0.0]))
    where = rng.random(a.shape) < draw.choice((0.02, 0.3, 0.9))
    a[where] = rng.choice(values, int(where.sum()))
    return a


def copied(T: Any, seed: str) -> list[Any]:
    """Copies in order, of and into any order, and reshapes that need one."""
    draw = random.Random(seed)
    a = numbers(draw, _sizes(draw, 60_000), draw.choice(KINDS))
    t = _view(T, a, draw)
    there = T.empty_like(t.transpose(0, -1)).transpose(0, -1)
    order = draw.sample(range(t.ndim), t.ndim)
    flat = t.reshape(-1)
    return [t.contiguous(), there.copy_(t), t.permute(*order).clone(), flat, t.flatten(),
            t.reshape(*t.shape[:-1], 1, t.shape[-1])]  # fmt: skip


def accumulated(T: Any, seed: str) -> list[Any]:
    """Running sums and products along an axis, with gradients and gradients of those."""
    draw = random.Random(seed)
    kind = draw.choice(("float32", "float64", "float64", "int64", "int32", "bool"))
    t = _view(T, numbers(draw, _sizes(draw, 9000), kind), draw)
    dim = draw.randrange(-t.ndim, t.ndim)
    if not t.is_floating_point():
        return [t.cumsum(dim), t.cumprod(dim)]
    x = t.detach().requires_grad_()
    out = x.cumsum(dim)
    g = T.from_numpy(numbers(random.Random(seed), tuple(out.shape), "float64")).to(x.dtype)
    weights = g.clone().requires_grad_()
    (first,) = T.autograd.grad(out, x, weights, create_graph=True)
    (second,) = T.autograd.grad((first * first).sum(), weights)
    return [out.detach(), first.detach(), second, t.cumprod(dim)]


def scattered(T: Any, seed: str) -> list[Any]:
    """Rows added to a table by number: gradients of embeddings, index_add, index_select."""
    draw = random.Random(seed)
    n, d, size = draw.randint(0, 300), draw.choice((1, 2, 7, 16, 64, 100)), draw.randint(1, 400)
    kind = draw.choice(("float32", "float64"))
    rng = np.random.default_rng(draw.getrandbits(32))
    index = T.from_numpy(rng.integers(0, draw.choice((1, size)), n))
    g = T.from_numpy(rng.normal(size=(d, n)).astype(kind)).t()
    table = T.from_numpy(rng.normal(size=(size, d)).astype(kind)).requires_grad_()
    skip = draw.choice((None, 0))
    T.nn.functional.embedding(index, table, padding_idx=skip).backward(g)
    out = [table.grad, T.zeros(size, d, dtype=g.dtype).index_add(0, index, g)]
    other = table.detach().t().contiguous().requires_grad_()
    other.index_select(1, index).backward(g.t())
    return [*out, other.grad]


def convolved(T: Any, seed: str) -> list[Any]:
    """Convolutions and transposed ones of one to three dimensions, and their gradients."""
    draw = random.Random(seed)
    rng = np.random.default_rng(draw.getrandbits(32))
    dims, groups, kind = draw.choice((1, 2, 2, 3)), draw.choice((1, 1, 2, 4)), draw.choice("fffd")
    kernel = [draw.choice((1, 2, 3, 3, 5)) for _ in range(dims)]
    stride, dilation = ([draw.choice((1, 1, 2, 3)) for _ in range(dims)] for _ in range(2))
    back = draw.random() < 0.3
    padding = [draw.randint(0, d * (k - 1)) for d, k in zip(dilation, kernel)]
    extra = [draw.randrange(max(s, d)) for s, d in zip(stride, dilation)]
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    how |= {"output_padding": extra} if back else {}
    inner, outer = (groups * draw.choice((3, 12, 16, 20, 33)) for _ in range(2))
    least = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    most = {1: 120, 2: 24, 3: 10}[dims]
    size = [draw.randint(n, max(n, most)) for n in least]
    first, second = (inner, outer // groups) if back else (outer, inner // groups)
    x, w, b = (
        T.from_numpy(rng.normal(size=shape).astype(kind)).requires_grad_()
        for shape in ((draw.randint(1, 3), inner, *size), (first, second, *kernel), (outer,))
    )
    name = f"conv{'_transpose' if back else ''}{dims}d"
    out = getattr(T.nn.functional, name)(x, w, b if draw.random() < 0.7 else None, **how)
    g = T.from_numpy(rng.normal(size=tuple(out.shape)).astype(kind))
    out.backward(g)
    return [out.detach(), x.grad, w.grad]


def filtered(T: Any, seed: str) -> list[Any]:
    """Convolutions in steps of one, large enough for minimal filtering, of numbers some of which
    are not finite, with channels in any order, and their gradients."""
    draw = random.Random(seed)
    rng = np.random.default_rng(draw.getrandbits(32))
    dims, groups, kind = (
        draw.choice((1, 2, 2, 3)),
        draw.choice((1, 1, 1, 2, 4)),
        draw.choice("fffd"),
    )
    kernel = [draw.choice((1, 2, 3, 3, 3, 4, 5, 7)[: 5 if dims > 2 else 8]) for _ in range(dims)]
    dilation = [draw.choice((1, 1, 1, 2, 3)) for _ in range(dims)]
    padding = [draw.randint(0, d * (k - 1) + 1) for d, k in zip(dilation, kernel)]
    how = {"padding": padding, "dilation": dilation, "groups": groups}
    back = draw.random() < 0.3
    how |= {"output_padding": [draw.randrange(d) for d in dilation]} if back else {}
    inner, outer = (groups * draw.choice((3, 8, 16, 21, 32)) for _ in range(2))
    most = {1: 2000, 2: 36, 3: 12}[dims]
    size = [draw.randint(max(n * 2 // 3, d * (k - 1) + 1), n + d * (k - 1))
            for n, d, k in zip([most] * dims, dilation, kernel)]  # fmt: skip
    first, second = (inner, outer // groups) if back else (outer, inner // groups)
    shapes = ((draw.choice((0, 1, 1, 2, 3)), inner, *size), (first, second, *kernel), (outer,))
    arrays = [rng.normal(size=shape).astype(kind) for shape in shapes]
    if arrays[0].size and not back and draw.random() < 0.2:
        places = rng.integers(0, arrays[0].size, draw.randint(1, 3))
        arrays[0].flat[places] = draw.choice((np.nan, np.inf, -np.inf))
    x, w, b = (T.from_numpy(a).requires_grad_() for a in arrays)
    seen = x.to(memory_format=T.channels_last) if dims == 2 and draw.random() < 0.3 else x
    run = getattr(T.nn.functional, f"conv{'_transpose' if back else ''}{dims}d")
    out = run(seen, w, b if draw.random() < 0.7 else None, **how)
    g = T.from_numpy(rng.normal(size=tuple(out.shape)).astype(kind))
    out.backward(g)
    return [out.detach(), x.grad, w.grad]


def asked(T: Any, seed: str) -> list[Any]:
    """Convolutions of arrays that lie in any way, of which some have gradients, and gradients of
    those."""
    draw = random.Random(seed)
    rng = np.random.default_rng(draw.getrandbits(32))
    dims, groups, kind = draw.choice((1, 2, 2)), draw.choice((1, 1, 3)), draw.choice("ffd")
    kernel = [draw.choice((1, 2, 3, 3, 5)) for _ in range(dims)]
    stride = [draw.choice((1, 1, 1, 2)) for _ in range(dims)]
    back = draw.random() < 0.4
    how = {"stride": stride, "padding": [k // 2 for k in kernel], "groups": groups}
    c, o = (groups * draw.choice((1, 8, 17, 32)) for _ in range(2))
    size = [draw.randint(k, {1: 400, 2: 26}[dims]) for k in kernel]
    first, second = (c, o // groups) if back else (o, c // groups)
    shapes = ((draw.choice((1, 2, 3)), c, *size), (first, second, *kernel), (o,))
    needs = draw.choice(((1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1)))
    leaves = [
        _laid(T, rng.normal(size=shape).astype(kind), draw).requires_grad_(bool(need))
        for shape, need in zip(shapes, needs)
    ]
    out = getattr(T.nn.functional, f"conv{'_transpose' if back else ''}{dims}d")(*leaves, **how)
    g = _laid(T, rng.normal(size=tuple(out.shape)).astype(kind), draw)
    leaves = [a for a in leaves if a.requires_grad]
    again = sum(needs[:2]) == 2 and draw.random() < 0.4
    grads = T.autograd.grad(out, leaves, g, create_graph=again)
    if again:
        grads += T.autograd.grad(sum((a * a).sum() for a in grads[:2]), leaves[:2])
    return [out.detach(), *(a.detach() for a in grads)]


def ordered(T: Any, seed: str) -> list[Any]:
    """Sorted elements with their places, and the first of them."""
    draw = random.Random(seed)
    t = _view(T, numbers(draw, _sizes(draw, 9000), draw.choice(KINDS[:6])), draw)
    dim, down = draw.randrange(-t.ndim, t.ndim), draw.random() < 0.5
    n = t.shape[dim]
    k = min(n, draw.choice((0, 1, 2, n // 64, n // 5, n)))
    best, places = T.topk(t, k, dim, down)
    return [*T.sort(t, dim=dim, descending=down, stable=True), best, t.gather(dim, places),
            T.argsort(t, dim=dim, descending=down, stable=True)]  # fmt: skip


def recurrent(T: Any, seed: str) -> list[Any]:
    """All states of recurrent networks, also packed, with gradients and gradients of those."""
    draw = random.Random(seed)
    mode, wide = draw.choice(("LSTM", "GRU", "RNN")), draw.choice((1, 3, 5, 20))
    high, kind = draw.choice((2, 5, 9, 16, 17, 35)), draw.choice(("f", "f", "d"))
    given = {"num_layers": draw.choice((1, 1, 2)), "bias": draw.random() < 0.7,
             "batch_first": draw.random() < 0.5, "bidirectional": draw.random() < 0.4}  # fmt: skip
    if mode == "LSTM" and draw.random() < 0.4:
        given["proj_size"] = draw.randint(1, high - 1)
    if mode == "RNN":
        given["nonlinearity"] = draw.choice(("tanh", "relu"))
    net = getattr(T.nn, mode)(wide, high, **given)
    net = net.double() if kind == "d" else net
    rng = np.random.default_rng(draw.getrandbits(32))
    with T.no_grad():
        for w in net.parameters():
            bound = min(0.5, 1.5 / math.sqrt(high))
            w.copy_(T.from_numpy(rng.uniform(-bound, bound, tuple(w.shape)).astype(kind)))
    lengths = rng.integers(1, 6, draw.choice((1, 2, 5, 8, 19)))
    shape = (len(lengths), 5) if given["batch_first"] else (5, len(lengths))
    a = rng.normal(size=(wide, *shape[::-1])).astype(kind)
    odd = draw.random() < 0.15
    x = T.from_numpy(_odd(draw, a) if odd else a).permute(2, 1, 0).requires_grad_()
    fed, packed, start = x, draw.random() < 0.5, []
    if draw.random() < 0.5:
        passes = given["num_layers"] * (2 if given["bidirectional"] else 1)
        widths = [given.get("proj_size", high), high][: 2 if mode == "LSTM" else 1]
        sizes = [(passes, len(lengths), width) for width in widths]
        start = [T.from_numpy(rng.normal(size=s).astype(kind)).requires_grad_() for s in sizes]
    if packed:
        fed = T.nn.utils.rnn.pack_padded_sequence(
            x, T.from_numpy(lengths), given["batch_first"], enforce_sorted=False
        )
    out, state = net(fed, *([tuple(start)] if mode == "LSTM" else start)[: len(start)])
    if packed:  # sequences of one length may stand in any order
        out = T.nn.utils.rnn.pad_packed_sequence(out, given["batch_first"])[0]
    outs = [out, *(state if isinstance(state, tuple) else (state,))]
    outs = outs[draw.choice((0, 0, 1)) :] if len(outs) > 1 else outs
    leaves, again = [x, *start, *net.parameters()], kind == "d" and draw.random() < 0.5 and not odd
    grads = T.autograd.grad(sum(o.sin().sum() for o in outs), leaves, create_graph=again)
    if again:
        grads += T.autograd.grad(sum((g * g).sum() for g in grads), leaves)
    return [o.detach() for o in (*outs, *grads)]


def strided(T: Any, seed: str) -> list[Any]:
    """Convolutions of inputs that are empty, padded on one side more or have their channels last,
    with kernels of one place or shorter than their steps."""
    draw = random.Random(seed)
    rng = np.random.default_rng(draw.getrandbits(32))
    kind, groups = draw.choice(("f", "d")), draw.choice((1, 1, 2, 16))
    each, outer = draw.choice((1, 4, 16, 20)), groups * draw.choice((1, 4, 16, 32))
    kernel = draw.choice(((1, 1), (1, 3), (2, 2), (3, 1), (3, 3)))
    how: dict[str, Any] = {"groups": groups, "dilation": (draw.choice((1, 1, 2)), 1)}
    if draw.random() < 0.25:
        how["padding"] = draw.choice(("same", "valid"))
    else:
        how["stride"] = draw.choice((1, 2, 3, 4, (1, 4)))
    size = draw.randint(5, 20), draw.choice((7, 14, 16, 28, 31))
    batch = draw.choice((0, 1, 2, 5))
    x, w = (
        T.from_numpy(rng.normal(size=shape).astype(kind)).requires_grad_()
        for shape in ((batch, groups * each, *size), (outer, each, *kernel))
    )
    seen = T.nn.functional.pad(x, [draw.randint(0, 3) for _ in range(4)])
    if draw.random() < 0.4:
        seen = seen.to(memory_format=T.channels_last)
    out = T.nn.functional.conv2d(seen, w, **how)
    g = T.from_numpy(rng.normal(size=tuple(out.shape)).astype(kind))
    out.backward(g.to(memory_format=T.channels_last) if draw.random() < 0.3 else g)
    return [out.detach(), x.grad, w.grad]


def multiplied(T: Any, seed: str) -> list[Any]:
    """Products of few rows with matrices that lie in any way, and their gradients."""
    draw = random.Random(seed)
    rng = np.random.default_rng(draw.getrandbits(32))
    kind = draw.choice(("f", "f", "d"))
    m, k, n = draw.randint(1, 20), draw.choice((1, 60, 257, 700)), draw.choice((1, 50, 400, 1030))
    x = T.from_numpy(rng.normal(size=(k, m) if draw.random() < 0.3 else (m, k)).astype(kind))
    x = (x if tuple(x.shape) == (m, k) else x.t()).requires_grad_()
    w = T.from_numpy(rng.normal(size=(n, k)).astype(kind)).requires_grad_()
    turned = T.from_numpy(rng.normal(size=(k, 2 * n)).astype(kind))[:, n:].requires_grad_()
    outs = [T.nn.functional.linear(x, w), x @ w.t(), x @ turned, x.reshape(1, m, k) @ turned]
    sum((o * o).sum() for o in outs).backward()
    return [*(o.detach() for o in outs), x.grad, w.grad, turned.grad]


def normalised(T: Any, seed: str) -> list[Any]:
    """Normalisations over groups of channels and over single ones, with gradients and gradients of
    those."""
    draw = random.Random(seed)
    rng = np.random.default_rng(draw.getrandbits(32))
    groups, each, kind = draw.choice((1, 2, 3, 8)), draw.choice((1, 2, 4)), draw.choice(("f", "d"))
    spatial = draw.choice(((2,), (5,), (30,), (4, 5), (9, 17)))
    shape = (draw.choice((1, 2, 5)), groups * each, *spatial)
    sizes = (shape, shape[1:2], shape[1:2])
    given = [T.from_numpy(rng.normal(size=s).astype(kind)) for s in sizes]
    if len(shape) == 4 and draw.random() < 0.3:
        given[0] = given[0].to(memory_format=T.channels_last)
    x, w, b = (a.requires_grad_() for a in given)
    w = w if draw.random() < 0.7 else None
    b = b if w is not None and draw.random() < 0.7 else None  # PyTorch's backward needs both so
    if math.prod(shape[2:]) > 1 and draw.random() < 0.4:
        out = T.nn.functional.instance_norm(x, weight=w, bias=b, eps=0.1)
    else:
        out = T.nn.functional.group_norm(x, groups, w, b, eps=0.1)
    leaves = [a for a in (x, w, b) if a is not None]
    again = kind == "d" and draw.random() < 0.4
    g = T.from_numpy(rng.normal(size=shape).astype(kind))
    grads = T.autograd.grad(out, leaves, g, create_graph=again)
    if again:
        grads += T.autograd.grad(sum((a * a).sum() for a in grads), leaves[:1])
    return [a.detach() for a in (out, *grads)]


def resized(T: Any, seed: str) -> list[Any]:
    """Images resized and pooled to sizes, with gradients."""
    draw = random.Random(seed)
    rng = np.random.default_rng(draw.getrandbits(32))
    dims = draw.choice((1, 2, 2, 3))
    size = [draw.randint(1, 7) for _ in range(dims)]
    to = [draw.choice((n, 2 * n, 3 * n, -(-n // 2), draw.randint(1, 9))) for n in size]
    kind = draw.choice(("f", "d"))
    x = T.from_numpy(rng.normal(size=(draw.choice((0, 1, 3)), 2, *size)).astype(kind))
    x, F = x.requires_grad_(), T.nn.functional
    mode = draw.choice(("nearest", "nearest", "nearest-exact", "area"))
    near = F.interpolate(x, size=to, mode=mode)
    pooled = getattr(F, f"adaptive_avg_pool{dims}d")(x, [draw.randint(1, n) for n in size])
    sum((o * o * o).sum() for o in (near, pooled)).backward()
    return [near.detach(), pooled.detach(), x.grad]


def pooled(T: Any, seed: str) -> list[Any]:
    """The largest of windows, some of them equal, and where they are, with gradients."""
    draw = random.Random(seed)
    rng, dims = np.random.default_rng(draw.getrandbits(32)), draw.choice((1, 2, 2, 3))
    kernel = [draw.randint(1, 4) for _ in range(dims)]
    how = {
        "stride": [draw.randint(1, 4) for _ in range(dims)],
        "padding": [draw.randint(0, k // 2) for k in kernel],
        "dilation": [draw.randint(1, 2) for _ in range(dims)],
        "ceil_mode": draw.random() < 0.3,
    }
    shape = (draw.choice((1, 3)), draw.choice((1, 4)), *(draw.randint(9, 14) for _ in range(dims)))
    a = np.round(rng.normal(size=shape), draw.choice((0, 1, 9))).astype(draw.choice(("f", "d")))
    a = _odd(draw, a) if draw.random() < 0.4 else a
    x = _laid(T, a, draw) if dims < 3 else T.from_numpy(a)
    if dims == 2 and draw.random() < 0.3:
        x = x.to(memory_format=T.channels_last)
    x.requires_grad_()
    pool = getattr(T.nn.functional, f"max_pool{dims}d")
    best, places = pool(x, kernel, return_indices=True, **how)
    g = rng.normal(size=tuple(best.shape)).astype(a.dtype)
    g = _odd(draw, g) if draw.random() < 0.2 else g
    pool(x, kernel, **how).backward(_laid(T, g, draw))
    return [best.detach(), places, x.grad]


def halved(T: Any, seed: str) -> list[Any]:
    """Half types: products and convolutions, in float32 at the end."""
    draw = random.Random(seed)
    rng = np.random.default_rng(draw.getrandbits(32))
    kind = draw.choice((T.float16, T.bfloat16))

    def drawn(*shape: int) -> Any:
        return T.from_numpy(rng.normal(size=shape).astype("f")).to(kind).requires_grad_()

    m, k, n = draw.randint(1, 40), draw.choice((3, 60, 300)), draw.choice((2, 50, 300))
    a, w, v = drawn(m, k), drawn(n, k), drawn(k, n)
    x, f = drawn(2, 8, 9, draw.choice((8, 14))), drawn(16, 8, 3, draw.choice((1, 3)))
    outs = [T.nn.functional.linear(a, w), a @ v, T.nn.functional.conv2d(x, f, padding=1)]
    for o in outs:
        o.backward(T.ones_like(o))
    return [t.detach().to(T.float32) for t in (*outs, a.grad, w.grad, v.grad, x.grad, f.grad)]


CASES = {
    "copied": copied, "accumulated": accumulated, "scattered": scattered, "convolved": convolved,
    "ordered": ordered, "recurrent": recurrent, "strided": strided, "multiplied": multiplied,
    "normalised": normalised, "resized": resized, "pooled": pooled, "halved": halved,
    "filtered": filtered, "asked": asked,
}  # fmt: skip


def _size(y: np.ndarray, name: str) -> float:
    """What the numbers of long sums lie around."""
    sums = ("convolved", "strided", "multiplied", "halved", "filtered", "asked")
    there = np.abs(y[np.isfinite(y)]) if name in sums else y[:0]
    return float(there.max(initial=0)) if name in sums else 0.0


def differences(name: str, ours: Any, theirs: Any, seed: str) -> list[str]:
    """Where the results of a case are not those of the peer."""
    wrong = []
    for k, (a, b) in enumerate(zip(*(CASES[name](T, seed) for T in (ours, theirs)), strict=True)):
        x, y = (np.asarray(t.detach().numpy()) for t in (a, b))
        far = 0.0 if name == "copied" else 2e-5 if "32" in str(b.dtype) else 1e-10
        far = 0.02 if name == "halved" else far  # bfloat16 has 8 bits
        if x.shape != y.shape or x.dtype != y.dtype:
            wrong.append(f"{seed}: result {k} is {x.dtype}{x.shape}, not {y.dtype}{y.shape}")
        elif not np.allclose(x, y, far, far * max(10, _size(y, name)), equal_nan=True):
            wrong.append(f"{seed}: result {k} differs")
    return wrong
