"""nn.functional: activations, losses, normalisation, convolutions, pooling, padding, the rest."""

from __future__ import annotations

from peers.generators.draw import Draw
from peers.generators.finish import backward, hook

ACTIVATIONS = """relu relu6 elu selu celu leaky_relu gelu silu mish sigmoid tanh softplus
softsign hardtanh hardswish hardsigmoid logsigmoid tanhshrink hardshrink softshrink rrelu glu
softmax log_softmax softmin threshold prelu normalize""".split()
WITH_INPLACE = (
    "relu relu6 elu selu celu leaky_relu silu mish hardtanh hardswish hardsigmoid".split()
)
REDUCTIONS = ("mean", "sum", "none")


def program(d: Draw) -> None:
    d.dtypes = d.choice((("float32",), ("float64",), ("float64",), ("float16",), ("bfloat16",)))
    for _ in range(d.rng.randint(1, 3)):
        d.choice((activation, loss, loss, classes, norm, conv, conv, pool, pool, pad, other))(d)
        if d.chance(0.15):
            hook(d)
    backward(d, roots=3)


def call(d: Draw, name: str, arguments: str) -> str | None:
    if not d.has(f"nn.functional.{name}"):
        return None
    return d.let(f"F.{name}({arguments})", rough=True, keep_errors=0.3)


def source(d: Draw, shape: list[int]) -> str:
    """An input: a leaf, something computed, or a transposed one."""
    kind = d.rng.random()
    if kind < 0.25 and len(shape) >= 2:
        turned = [*shape[:-2], shape[-1], shape[-2]]
        return d.let(f"{d.leaf(turned)}.transpose(-1, -2)") or d.leaf(shape)
    x = d.leaf(shape)
    return d.let(f"{x} * 1") or x if kind < 0.6 else x


def activation(d: Draw) -> None:
    name = d.choice(ACTIVATIONS)
    x = source(d, d.shape(1 if name == "glu" else 0, 3, sizes=(1, 2, 4)))
    n = max(1, d[x].dim())
    extra = {
        "elu": (", 0.7",), "celu": (", 0.5",), "leaky_relu": (", 0.2",),
        "gelu": (", approximate='tanh'",),
        "softplus": (", 2., 1.5", ", 0.5"), "hardtanh": (", -0.5, 1.25",),
        "hardshrink": (", 0.75",),
        "softshrink": (", 0.25",), "threshold": (", 0.25, 1.5",), "glu": (", -1",
        f", {d.rng.randrange(n)}"),
        "softmax": (f", {d.dim(d[x])}", f", -1, dtype=T.{d.choice(('float32', 'float64'))}"),
        "log_softmax": (f", {d.dim(d[x])}",), "softmin": (f", {d.dim(d[x])}",),
        "prelu": (", T.tensor([0.25], dtype=" + x + ".dtype)",), "normalize": (", dim=-1",
        ", p=1, dim=0"),
    }.get(name, ())  # fmt: skip
    must = name in ("softmax", "log_softmax", "softmin", "prelu", "threshold", "normalize")
    arguments = x + (d.choice(extra) if extra and (must or d.chance(0.5)) else "")
    if name == "hardsigmoid" and d[x].dtype == d.peer.float64:
        return  # the peer divides by a six in single precision there
    if name in WITH_INPLACE and d.chance(0.3):
        arguments += ", inplace=True"
    call(d, name, arguments)


def loss(d: Draw) -> None:
    """Losses of two tensors of a shape."""
    shape = d.shape(0, 3, sizes=(1, 2, 3))
    x = source(d, shape)
    dtype = str(d[x].dtype).rpartition(".")[2]
    y = d.leaf(shape, dtype, grad=d.chance(0.3))
    how = f"reduction={d.choice(REDUCTIONS)!r}"
    signs = f"({y} > 0.5).to({x}.dtype) * 2 - 1"
    weight = d.literal(shape, dtype, positive=True)
    name, arguments = d.choice((
        ("mse_loss", f"{x}, {y}"), ("l1_loss", f"{x}, {y}"), ("smooth_l1_loss",
        f"{x}, {y}, beta={d.choice((0.5, 1.0))}"),
        ("huber_loss", f"{x}, {y}, delta={d.choice((0.5, 1.5))}"), ("mse_loss",
        f"{x}, {y}, weight={weight}"),
        ("binary_cross_entropy", f"{x}.sigmoid(), {y}.sigmoid()"),
        ("binary_cross_entropy", f"{x}.sigmoid(), ({y} > 0).to({x}.dtype), {weight}"),
        ("binary_cross_entropy_with_logits", f"{x}, {y}.sigmoid()"),
        ("binary_cross_entropy_with_logits", f"{x}, ({y} > 0).to({x}.dtype), pos_weight={weight}"),
        ("kl_div", f"{x}, {y}.sigmoid(), log_target={d.chance(0.5)}"), ("soft_margin_loss",
        f"{x}, {signs}"),
        ("hinge_embedding_loss", f"{x}, {signs}, margin=0.75"), ("poisson_nll_loss",
        f"{x}, {y}, log_input={d.chance(0.5)}"),
        ("gaussian_nll_loss", f"{x}, {y}, {weight}"), ("margin_ranking_loss", f"{x}, {y}, {signs}"),
        ("l1_loss", f"{x}, {y}[..., :1]" if shape else f"{x}, {y}"),
        ("cosine_embedding_loss", f"{x}.reshape(1, -1) + 4, {y}.reshape(1, -1), "
         f"T.tensor([{d.choice((-1, 1))}])"),
        ("triplet_margin_loss", f"{x}.reshape(1, -1), {y}.reshape(1, -1), {y}.reshape(1, -1) + 1"),
        ("multilabel_soft_margin_loss",
         f"{x}.reshape(1, -1), ({y}.reshape(1, -1) > 0).to({x}.dtype)"),
    ))  # fmt: skip
    call(d, name, f"{arguments}, {how}")


def classes(d: Draw) -> None:
    """cross_entropy, nll_loss and their kin: classes, weights, ignored ones, soft targets."""
    n, c = d.rng.randint(1, 4), d.rng.randint(2, 4)
    more = d.choice(([], [], [2], [2, 2]))
    x = source(d, [n, c, *more] if d.chance(0.85) else [c])
    dtype = str(d[x].dtype).rpartition(".")[2]
    shape = [n, *more] if d[x].dim() > 1 else []

    def label() -> int:
        return d.choice([*range(c), c - 1, 0, -100 if d.chance(0.15) else 1])

    target = f"T.tensor({d.nested(shape, label)})"
    how = f"reduction={d.choice(REDUCTIONS)!r}"
    if d.chance(0.35):
        how += f", weight={d.literal([c], dtype, positive=True)}"
    if d.chance(0.2):
        how += f", ignore_index={d.choice((0, 1, -100))}"
    kind = d.rng.random()
    if kind < 0.5:
        if d.chance(0.3):
            how += ", label_smoothing=0.1"
        call(d, "cross_entropy", f"{x}, {target}, {how}")
    elif kind < 0.8:
        call(d, "nll_loss", f"F.log_softmax({x}, {0 if d[x].dim() == 1 else 1}), {target}, {how}")
    elif kind < 0.9:
        soft = d.leaf(list(d[x].shape), dtype, grad=d.chance(0.3))
        call(d, "cross_entropy", f"{x}, {soft}.softmax(0), reduction={d.choice(REDUCTIONS)!r}")
    elif not more and d[x].dim() > 1:
        call(
            d,
            "multi_margin_loss",
            f"{x}, {target}, {how.partition(', weight')[0].partition(', ignore')[0]}",
        )


def norm(d: Draw) -> None:
    n, c = d.rng.randint(1, 3), d.choice((2, 4))
    more = d.choice(([], [3], [2, 3]))
    x = source(d, [n, c, *more])
    dtype = str(d[x].dtype).rpartition(".")[2]
    w, b = d.leaf([c], dtype), d.leaf([c], dtype)
    last = d.leaf([d[x].shape[-1]], dtype)
    mean, var = d.literal([c], dtype), d.literal([c], dtype, positive=True)
    affine = d.choice(("", f", weight={w}, bias={b}", f", weight={w}"))
    name, arguments = d.choice((
        ("batch_norm", f"{x}, None, None, training=True{affine}"),
        ("batch_norm", f"{x}, {mean}, {var}, training={d.chance(0.5)}{affine}"),
        ("layer_norm",
         f"{x}, {[d[x].shape[-1]]}{d.choice(('', f', {last}', f', {last}, {last}'))}"),
        ("layer_norm", f"{x}, {list(d[x].shape[1:])}"), ("rms_norm",
        f"{x}, {[d[x].shape[-1]]}{d.choice(('', f', {last}'))}"),
        ("group_norm", f"{x}, {d.choice((1, 2))}{affine}"), ("instance_norm", f"{x}{affine}"),
        ("local_response_norm", f"{x}, 3, 0.1"),
    ))  # fmt: skip
    call(d, name, arguments)


def conv(d: Draw) -> None:
    dims = d.choice((1, 1, 2, 2, 3))
    groups = d.choice((1, 1, 2))
    c, out = 2 * groups if d.chance(0.5) else groups, groups * d.rng.randint(1, 2)
    sizes = [d.rng.randint(2, 5) for _ in range(dims)]
    x = source(d, [d.rng.randint(1, 2), c, *sizes] if d.chance(0.9) else [c, *sizes])
    dtype = str(d[x].dtype).rpartition(".")[2]
    kernel = [d.rng.randint(1, 3) for _ in range(dims)]
    turned = d.chance(0.35)
    w = d.leaf([c, out // groups, *kernel] if turned else [out, c // groups, *kernel], dtype)
    bias = d.choice((", None", f", {d.leaf([out], dtype)}"))
    stride, padding = d.rng.randint(1, 2), d.choice((0, 0, 1, 2))
    options = f"stride={stride}, padding={padding}, dilation={d.choice((1, 1, 2))}, groups={groups}"
    if turned:
        options += f", output_padding={d.choice((0, 0, 1))}"
    elif d.chance(0.15):
        options = f"padding={d.choice(('same', 'valid'))!r}, groups={groups}"
    call(d, f"conv{'_transpose' if turned else ''}{dims}d", f"{x}, {w}{bias}, {options}")


def pool(d: Draw) -> None:
    dims = d.choice((1, 2, 2, 3))
    shape = [d.rng.randint(1, 2), d.rng.randint(1, 2), *(d.rng.randint(2, 5) for _ in range(dims))]
    x = source(d, shape if d.chance(0.85) else shape[1:])
    kernel, stride = d.rng.randint(1, 3), d.choice(("", ", 1", ", 2", ", 3"))
    padding = f", padding={d.rng.randint(0, 1)}" if stride or d.chance(0.3) else ""
    size = d.choice((1, 2, 3, tuple([None] + [2] * (dims - 1)) if dims > 1 else 2))
    ceil = d.choice(("", ", ceil_mode=True"))
    name, arguments = d.choice((
        ("max_pool", f"{kernel}{stride}{padding}{ceil}"), ("max_pool",
        f"{kernel}{stride}, dilation=2, return_indices=True"),
        ("avg_pool",
         f"{kernel}{stride}{padding}{ceil}{d.choice(('', ', count_include_pad=False'))}"),
        ("adaptive_avg_pool", f"{size}"), ("adaptive_max_pool", f"{size}"), ("lp_pool",
        f"2, {kernel}{stride}"),
    ))  # fmt: skip
    if d[x].detach().unique().numel() == d[x].numel() or "avg" in name:
        call(d, f"{name}{dims}d", f"{x}, {arguments}")


def pad(d: Draw) -> None:
    dims = d.choice((1, 2, 3))
    x = source(d, [1, 2, *(d.rng.randint(2, 4) for _ in range(dims))])
    mode = d.choice(("constant", "reflect", "replicate", "circular"))
    amounts = [d.rng.randint(-1, 2) for _ in range(2 * dims)]
    value = f", value={d.number()}" if mode == "constant" and d.chance(0.5) else ""
    call(d, "pad", f"{x}, {amounts}, mode={mode!r}{value}")


def other(d: Draw) -> None:
    n = d.rng.randint(1, 3)
    x, image = source(d, [n, 3]), source(d, [1, 4, d.choice((2, 3)), 2])
    dtype = str(d[x].dtype).rpartition(".")[2]
    table = d.leaf([4, 3], dtype)
    q, k, v = (d.leaf([1, 2, s, 4], dtype) for s in (2, 3, 3))
    mode = d.choice(("nearest", "bilinear", "bicubic", "area", "nearest-exact"))
    corners = d.choice((", align_corners=True", "")) if mode.startswith("bi") else ""
    size = d.choice(("scale_factor=2", "size=(3, 5)", "scale_factor=(1.5, 0.7)"))
    mask = d.choice(
        (
            "",
            ", is_causal=True",
            ", attn_mask=T.tensor([[True, False, True], [True, True, False]])",
            ", scale=0.3",
        )
    )
    name, arguments = d.choice((
        ("linear", f"{x}, {table}, {d.leaf([4], dtype)}"), ("bilinear",
        f"{x}, {x}, {d.leaf([2, 3, 3], dtype)}"),
        ("embedding", f"T.tensor([[0, 3], [2, 2]]), {table}"
         + d.choice(("", ", padding_idx=2", ", scale_grad_by_freq=True"))),
        ("interpolate", f"{image}, {size}, mode={mode!r}{corners}"), ("pixel_shuffle",
        f"{image}, {d.choice((1, 2))}"),
        ("pixel_unshuffle", f"{image}, {d.choice((1, 2))}"), ("channel_shuffle", f"{image}, 2"),
        ("unfold", f"{image}, 2, padding=1"),
        ("fold", f"{image}.reshape(1, 4, -1), (2, {d[image].numel() // 4 + 1}), (2, 2)"),
        ("cosine_similarity", f"{x}, {x} + 1, dim={d.choice((0, 1, -1))}"), ("pairwise_distance",
        f"{x}, {x} * 2, p={d.choice((1, 2, 3))}"),
        ("scaled_dot_product_attention", f"{q}, {k}, {v}{mask}"), ("dropout",
        f"{x}, 0.5, training=False"),
        ("one_hot", "T.tensor([0, 2, 1]), 4"), ("dropout", f"{x}, 0.0"), ("embedding_bag",
        f"T.tensor([[0, 3], [2, 2]]), {table}"),
        ("affine_grid", f"{d.leaf([1, 2, 3], dtype)}, (1, 1, 2, 2)"), ("grid_sample",
        f"{image}, {d.leaf([1, 2, 2, 2], dtype)} / 4"),
    ))  # fmt: skip
    call(d, name, arguments)
