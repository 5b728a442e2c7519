"""Models drawn from seeds: networks of images, rows and sequences, and programs of operations on
tensors. What is written of one is to compute what it does, for other sizes too."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import disttrain as dt
from disttrain import nn
from disttrain.nn import functional as F


class Drawn(NamedTuple):
    """A model, its arguments (of several sizes), and which dimensions may change."""

    model: Callable
    given: list[tuple]
    dynamic: Any


ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.SELU, nn.LeakyReLU, nn.Hardswish,
    nn.Hardsigmoid, nn.Mish, nn.Softplus, nn.Softsign, nn.ReLU6, nn.PReLU, nn.CELU,
    lambda: nn.GELU("tanh"), lambda: nn.Hardtanh(-0.5, 0.7),
]  # fmt: skip


class Beside(nn.Module):
    """What a module gives, and what it was given, together."""

    def __init__(self, inner: nn.Module, join: bool) -> None:
        super().__init__()
        self.inner, self.join = inner, join

    def forward(self, x: dt.Tensor) -> dt.Tensor:
        y = self.inner(x)
        return dt.cat([x, y], 1) if self.join else x + y


def settle(model: nn.Module) -> nn.Module:
    """Statistics and scales that are not those of the beginning."""
    for name, t in model.named_buffers():
        if name.endswith("running_var"):
            t.copy_(dt.rand(*t.shape) + 0.5)
        elif name.endswith("running_mean"):
            t.copy_(dt.randn(*t.shape) * 0.3)
    return model.eval()


# --- images ------------------------------------------------------------------------------------
def images(r: random.Random) -> Drawn:
    """Convolutions, norms, activations, pools, sizes up and down."""
    channels, layers = r.choice([1, 2, 3]), list[nn.Module]()
    first = channels
    for _ in range(r.randint(1, 4)):
        layer, channels = _layer(r, channels)
        layers.append(layer)
    head = r.choice(["none", "mean", "flat"])
    if head == "mean":
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)]
    elif head == "flat":
        layers.append(nn.Flatten(r.choice([1, 2])))
    sizes = [(r.randint(1, 3), first, 12, 14) for _ in range(2)]
    which: dict[int, str] = {0: "batch"} if r.random() < 0.7 else {}
    if not which:
        sizes = sizes[:1]
    given = [(dt.randn(*s),) for s in sizes]
    return Drawn(settle(nn.Sequential(*layers)), given, (which,) if which else None)


def _layer(r: random.Random, channels: int) -> tuple[nn.Module, int]:
    kind = r.choice("conv conv conv norm act pool up pad residual join group transposed".split())
    if kind == "conv":
        out = r.choice([2, 4, 6])
        how = {"padding": r.choice([1, 2]), "dilation": r.choice([1, 2]), "bias": r.random() < 0.7}
        mode = r.choice(["zeros", "zeros", "reflect", "replicate", "circular"])
        return nn.Conv2d(channels, out, 3, padding_mode=mode, **how), out
    if kind == "transposed":
        s = r.choice([1, 2])
        return nn.ConvTranspose2d(channels, 3, 3, stride=s, padding=1, output_padding=s - 1), 3
    if kind == "norm":
        norms = [nn.BatchNorm2d(channels), nn.InstanceNorm2d(channels, affine=r.random() < 0.5),
                 nn.GroupNorm(1, channels)]  # fmt: skip
        return r.choice(norms), channels
    if kind == "act":
        return r.choice(ACTIVATIONS)(), channels
    if kind == "pool":
        pools = [nn.MaxPool2d(2, ceil_mode=r.random() < 0.5), nn.AvgPool2d(3, 1, 1),
                 nn.MaxPool2d(3, 1, 1), nn.LPPool2d(2, 2),
                 nn.AvgPool2d(2, count_include_pad=False)]  # fmt: skip
        return r.choice(pools), channels
    if kind == "up":
        mode = r.choice(["nearest", "bilinear", "bicubic"])
        return nn.Upsample(scale_factor=2, mode=mode), channels
    if kind == "pad":
        pads = [
            nn.ZeroPad2d((1, 0, 2, 1)),
            nn.ReflectionPad2d(1),
            nn.ReplicationPad2d((0, 1, 1, 0)),
        ]
        return r.choice(pads), channels
    if kind == "group":
        return nn.Conv2d(channels, channels * 2, 3, padding=1, groups=channels), channels * 2
    inner = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), r.choice(ACTIVATIONS)())
    join = kind == "join"
    return Beside(inner, join), channels * (1 + join)


# --- rows and sequences ------------------------------------------------------------------------
def rows(r: random.Random) -> Drawn:
    """Linear layers, norms and activations, of rows or of rows of rows."""
    width = first = r.choice([3, 5, 8])
    layers = list[nn.Module]()
    for _ in range(r.randint(1, 5)):
        new = r.choice([4, 6])
        layers.append(nn.Linear(width, new, bias=r.random() < 0.8))
        width = new
        layers.append(r.choice([*ACTIVATIONS, lambda w=width: nn.LayerNorm(w), nn.Identity,
                                lambda w=width: nn.RMSNorm(w), lambda: nn.Softmax(-1),
                                lambda: nn.LogSoftmax(-1), nn.Dropout])())  # fmt: skip
        if isinstance(layers[-1], nn.PReLU):
            layers[-1] = nn.ReLU()
    more = r.random() < 0.4
    given = [(dt.randn(*((n, k, first) if more else (n, first))),) for n, k in ((2, 5), (4, 3))]
    return Drawn(settle(nn.Sequential(*layers)), given, ({0: "n", 1: "k"} if more else {0: "n"},))


class Recurrent(nn.Module):
    """A recurrent network, and a layer on what it gives."""

    def __init__(self, kind: str, last: bool, **how: Any) -> None:
        super().__init__()
        self.net = getattr(nn, kind)(**how)
        width = how["hidden_size"] * (1 + how["bidirectional"])
        self.head, self.last = nn.Linear(width, 3), last

    def forward(self, x: dt.Tensor) -> tuple:
        y, state = self.net(x)
        y = self.head(y)
        return (y[-1], state) if self.last else (y, state)


def sequences(r: random.Random) -> Drawn:
    """LSTM, GRU and RNN over sequences."""
    how = {
        "input_size": 4, "hidden_size": r.choice([3, 5]), "num_layers": r.choice([1, 2]),
        "bidirectional": r.random() < 0.5, "batch_first": r.random() < 0.5,
        "bias": r.random() < 0.8,
    }  # fmt: skip
    kind = r.choice(["LSTM", "GRU", "RNN"])
    if kind == "RNN":
        how["nonlinearity"] = r.choice(["tanh", "relu"])
    batch = r.random() < 0.8
    given = [(dt.randn(n, k, 4),) for n, k in ((3, 7), (5, 2))]
    model = settle(Recurrent(kind, r.random() < 0.5, **how))
    return Drawn(model, given if batch else given[:1], ({0: "a", 1: "b"},) if batch else None)


class Attention(nn.Module):
    """Layers of a transformer over numbers of words."""

    def __init__(self, r: random.Random) -> None:
        super().__init__()
        width, heads = r.choice([(8, 2), (12, 3)])
        self.words, self.places = nn.Embedding(20, width), nn.Embedding(16, width)
        how = {
            "activation": r.choice(["relu", "gelu"]), "norm_first": r.random() < 0.5,
            "batch_first": True, "dropout": 0.1,
        }  # fmt: skip
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, **how)
        self.body = nn.TransformerEncoder(layer, r.choice([1, 2]), enable_nested_tensor=False)
        self.head = nn.Linear(width, 20, bias=False)
        self.causal = r.random() < 0.5

    def forward(self, words: dt.Tensor) -> dt.Tensor:
        n = words.shape[1]
        x = self.words(words) + self.places(dt.arange(n))
        mask = None
        if self.causal:
            mask = dt.arange(n)[None, :] > dt.arange(n)[:, None]
        return self.head(self.body(x, mask=mask))


def words(r: random.Random) -> Drawn:
    """Transformers."""
    given = [(dt.randint(0, 20, (n, k)),) for n, k in ((2, 6), (3, 4))]
    return Drawn(settle(Attention(r)), given, ({0: "batch", 1: "length"},))


# --- operations --------------------------------------------------------------------------------
Step = Callable[[dt.Tensor], dt.Tensor]
_SAME: dict[str, Step] = {  # the shape (n, k) stays
    "exp": lambda x: dt.exp(x.clamp(-2, 2)),
    "abs": lambda x: x.abs() + 0.1,
    "sqrt": lambda x: (x * x + 1).sqrt(),
    "trig": lambda x: dt.sin(x) * dt.cos(x),
    "softmax": lambda x: x.softmax(-1),
    "cumsum": lambda x: x.cumsum(1),
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(1, 0),
    "sort": lambda x: x.sort(1)[0],
    "where": lambda x: dt.where(x > 0, x, x * 0.3),
    "norm": lambda x: F.normalize(x, dim=1),
    "centre": lambda x: x - x.mean(1, keepdim=True),
    "std": lambda x: x / (x.std(1, keepdim=True) + 1),
    "gram": lambda x: x @ x.t() @ x * 0.1,
    "mask": lambda x: x.masked_fill(x > 1, 0.5),
    "clip": lambda x: x.clamp(min=-1).clamp(max=1.5),
    "round": lambda x: dt.floor(x * 4) / 4,
    "cast": lambda x: (x > 0).float() + x.to(dt.float64).to(dt.float32),
    "count": lambda x: x + (x > 0).sum(1, keepdim=True),
    "any": lambda x: x * (x > 1).any(1)[:, None],
    "tri": lambda x: dt.tril(x) + dt.triu(x, 1) * 2,
    "arange": lambda x: x + dt.arange(x.shape[1]),
    "max": lambda x: x - x.amax(1, keepdim=True),
    "best": lambda x: x + x.argmax(1)[:, None],
    "lse": lambda x: x - dt.logsumexp(x, 1, keepdim=True),
    "rem": lambda x: dt.remainder(x, 0.7),
    "gather": lambda x: x.gather(1, x.argsort(1)),
    "size": lambda x: x * x.shape[0] / x.shape[1],
    "halves": lambda x: dt.cat([x[:, 1:], x[:, :1]], 1),
    "pow": lambda x: (x.abs() + 0.1) ** 1.7,
    "stack": lambda x: dt.stack([x, x * 2], 0).sum(0),
    "write": lambda x: _write(x),
    "atan2": lambda x: dt.atan2(x, x.flip(0) + 0.01),
    "view": lambda x: x.reshape(-1).view(x.shape),
    "unsq": lambda x: x[None].expand(2, -1, -1).mean(0),
    "outer": lambda x: dt.einsum("nk,nj->nkj", x, x).sum(2),
    "prod": lambda x: x * x[:, :2].prod(1, keepdim=True),
}


def _write(x: dt.Tensor) -> dt.Tensor:
    y = x.clone()
    y[:, 0] = 1.5
    y[:, 1:] += y[:, :1]
    y[0] = y[-1] * 2
    return y


class Steps(nn.Module):
    """Operations one after the other."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def forward(self, x: dt.Tensor, y: dt.Tensor) -> tuple:
        for i, name in enumerate(self.names):
            x = _SAME[name](x) + (y if i % 2 else 0.0)
        return x, x.sum(0), (x > 0)


def operations(r: random.Random) -> Drawn:
    """Programs of operations on matrices."""
    names = [r.choice(list(_SAME)) for _ in range(r.randint(2, 7))]
    sizes = [(4, 5), (3, 6)] if r.random() < 0.6 else [(4, 5)]
    given = [(dt.randn(n, k), dt.randn(n, k)) for n, k in sizes]
    which = {0: "n", 1: "k"}
    return Drawn(Steps(names), given, (which, which) if len(sizes) > 1 else None)


FAMILIES = (images, rows, sequences, words, operations, operations)


def drawn(seed: int) -> Drawn:
    """The model of a seed."""
    r = random.Random(seed)
    dt.manual_seed(seed)
    return FAMILIES[seed % len(FAMILIES)](r)
