"""Places in images and sequences: grids, windows of drawn places, unpooling, alignments."""

from __future__ import annotations

from peers.generators.draw import Draw
from peers.generators.finish import backward
from peers.generators.layers import REDUCTIONS, call, source


def program(d: Draw) -> None:
    d.dtypes = d.choice((("float32",), ("float64",)))
    for _ in range(d.rng.randint(1, 3)):
        d.choice((grid, grid, affine, regions, unpooled, fractional, powers, alignment, rare))(d)
    backward(d, roots=3)


def _sizes(d: Draw, n: int, most: int = 5) -> list[int]:
    return [d.rng.randint(1, most) for _ in range(n)]


def _image(d: Draw, n: int, most: int = 6) -> str:
    lead = [d.rng.randint(1, 2), d.rng.randint(1, 3)]
    return source(d, lead[d.chance(0.15) :] + _sizes(d, n, most))


def _kind(d: Draw, x: str) -> str:
    return str(d[x].dtype).rpartition(".")[2]


def _whole(d: Draw, n: int) -> str:
    return d.choice((str(d.rng.randint(1, 3)), str(tuple(_sizes(d, n, 3)))))


def grid(d: Draw) -> None:
    n = d.choice((2, 2, 3))
    batch = d.rng.randint(1, 2)
    x = source(d, [batch, d.rng.randint(1, 3), *_sizes(d, n)])
    places = source(d, [batch, *_sizes(d, n, 3), n])
    mode = d.choice(("bilinear", "bilinear", "nearest", "bicubic"))
    border = d.choice(("zeros", "border", "reflection"))
    shift = f"{places} * 0.61 + 0.013"  # away from where the nearest one changes
    call(
        d, "grid_sample",
        f"{x}, {shift}, {mode!r}, {border!r}, align_corners={d.chance(0.5)}",
    )  # fmt: skip


def affine(d: Draw) -> None:
    n = d.choice((2, 3))
    theta = source(d, [d.rng.randint(1, 2), n, n + 1])
    size = [d[theta].shape[0], 2, *_sizes(d, n, 4)]
    call(d, "affine_grid", f"{theta}, {size}, align_corners={d.chance(0.5)}")


def regions(d: Draw) -> None:
    n = d.choice((1, 2, 3))
    x = _image(d, n)
    wanted = d.choice((_whole(d, n), str(tuple(d.choice((None, 2, 3)) for _ in range(n)))))
    if n == 1 and "None" in wanted:
        return
    places = f", return_indices={d.chance(0.5)}"
    call(d, f"adaptive_max_pool{n}d", f"{x}, {wanted}{places}")


def unpooled(d: Draw) -> None:
    n = d.choice((1, 2, 3))
    x = _image(d, n)
    k, s = d.rng.randint(1, 3), d.choice((None, 1, 2, 3))
    p = d.rng.randint(0, k // 2)
    pooled = call(d, f"max_pool{n}d", f"{x}, {k}, {s}, {p}, return_indices=True")
    if pooled is None:
        return
    size = d.choice(("", "", f", {list(d[x].shape)}", f", {list(d[x].shape[-n:])}"))
    if n == 1 or s is None or s >= k:  # where places repeat, the last one written stays
        call(d, f"max_unpool{n}d", f"{pooled}[0], {pooled}[1], {k}, {s}, {p}{size}")


def fractional(d: Draw) -> None:
    n = d.choice((2, 3))
    x = source(d, [d.rng.randint(1, 2), d.rng.randint(1, 2), *(s + n for s in _sizes(d, n))])
    k = d.rng.randint(1, 2)
    wanted = d.choice((
        f"output_size={d.rng.randint(1, 2)}",
        f"output_ratio={tuple(d.choice((0.4, 0.5, 0.7)) for _ in range(n))}",
    ))  # fmt: skip
    draws = [round(d.rng.random(), 3) for _ in range(d[x].shape[0] * d[x].shape[1] * n)]
    samples = f"T.tensor({draws}, dtype=T.{_kind(d, x)}).reshape({[*d[x].shape[:2], n]})"
    call(
        d, f"fractional_max_pool{n}d",
        f"{x}, {k}, {wanted}, return_indices={d.chance(0.5)}, _random_samples={samples}",
    )  # fmt: skip


def powers(d: Draw) -> None:
    n = d.choice((1, 2))
    x = _image(d, n)
    stride = f", {d.rng.randint(1, 3)}" if d.chance(0.5) else ""
    call(d, f"lp_pool{n}d", f"{x}, {d.choice((1, 2, 3))}, {d.rng.randint(1, 2)}{stride}")


def alignment(d: Draw) -> None:
    time, batch, classes = d.rng.randint(2, 7), d.rng.randint(1, 3), d.rng.randint(2, 4)
    x = source(d, [time, batch, classes])
    steps = [d.rng.randint(1, time) for _ in range(batch)]
    sizes = [d.rng.randint(0, 3) for _ in range(batch)]
    blank = d.choice((0, classes - 1))
    labels = [c for c in range(classes) if c != blank]
    rows = [[d.choice(labels) for _ in range(3)] for _ in range(batch)]
    row = [label for one, size in zip(rows, sizes, strict=True) for label in one[:size]]
    targets = f"T.tensor({rows})" if d.chance(0.5) else f"T.tensor({row}, dtype=T.int64)"
    lengths = (steps, sizes) if d.chance(0.5) else tuple(f"T.tensor({n})" for n in (steps, sizes))
    call(
        d, "ctc_loss",
        f"F.log_softmax({x}, -1), {targets}, {lengths[0]}, {lengths[1]}, {blank}, "
        f"{d.choice(REDUCTIONS)!r}, True",
    )  # fmt: skip


def rare(d: Draw) -> None:
    """Scores of clusters of classes, with weights that are set."""
    x = source(d, [d.rng.randint(1, 4), 4])
    ends = d.choice(([2], [2, 4], [1, 3, 5]))
    bias = d.chance(0.5)
    model = f"T.nn.AdaptiveLogSoftmaxWithLoss(4, 7, {ends}, 2.0, {bias}).to(T.{_kind(d, x)})"
    name = f"m{len(d.lines)}"
    d.add(f"{name} = {model}")
    d.add(
        f"[p.detach().copy_((T.arange(p.numel()).to(p.dtype) * 0.37).sin().reshape(p.shape)) "
        f"for p in {name}.parameters()]"
    )
    targets = [d.rng.randrange(7) for _ in range(d[x].shape[0])]
    d.let(f"{name}({x}, T.tensor({targets}))[{d.rng.randrange(2)}]", rough=True)
    d.let(f"{name}.log_prob({x})", rough=True)
