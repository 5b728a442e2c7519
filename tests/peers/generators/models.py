"""Random models for whole trainings: parts in a row, shared, tied, views of one buffer, lazy."""

from __future__ import annotations

from dataclasses import dataclass

from peers.generators.draw import Draw

WIDTH = 4
# What a part makes in __init__, and its line in forward; {i} is its number.
PARTS = (
    ("self.a{i} = nn.Linear(4, 4)", "x = self.a{i}(x).tanh()"),
    ("self.a{i} = nn.Linear(4, 4, bias=False)", "x = x + self.a{i}(x)"),
    ("self.a{i} = nn.Linear(4, 4)", "x = self.a{i}(self.a{i}(x).sigmoid())"),
    ("self.a{i} = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Dropout(0.0), nn.Linear(6, 4))",
     "x = self.a{i}(x)"),
    ("self.a{i} = nn.LayerNorm(4)", "x = self.a{i}(x)"),
    ("self.a{i} = nn.RMSNorm(4)", "x = self.a{i}(x)"),
    ("self.a{i} = nn.BatchNorm1d(4)", "x = self.a{i}(x)"),
    ("self.a{i} = nn.GroupNorm(2, 4)", "x = self.a{i}(x)"),
    ("self.a{i} = nn.PReLU(4)", "x = self.a{i}(x)"),
    ("self.a{i} = nn.LazyLinear(4)", "x = self.a{i}(x)"),
    ("self.a{i} = nn.Conv1d(1, 2, 3, padding=1)", "x = self.a{i}(x.unsqueeze(1)).mean(1)"),
    ("self.a{i} = nn.Conv2d(1, 2, 2, padding=1)", "x = self.a{i}(x.view(-1, 1, 2, 2)).mean((1))"
     ".flatten(1)[:, :4]"),
    ("self.a{i} = nn.GRU(4, 4, batch_first=True)", "x = self.a{i}(x.unsqueeze(0))[0][0]"),
    ("self.a{i} = nn.LSTM(4, 2, bidirectional=True)", "x = self.a{i}(x.unsqueeze(1))[0][:, 0]"),
    ("self.a{i} = nn.RNNCell(4, 4)", "x = self.a{i}(x, x)"),
    ("self.a{i} = nn.MultiheadAttention(4, 2, batch_first=True)",
     "x = x + self.a{i}(x[None], x[None], x[None], need_weights=False)[0][0]"),
    ("self.a{i} = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)",
     "x = self.a{i}(x[None])[0]"),
    ("self.a{i} = nn.Parameter(T.zeros(20))",
     "x = F.linear(x, self.a{i}[:16].view(4, 4), self.a{i}[16:])"),
    ("b = T.zeros(20); self.a{i} = nn.Parameter(b[:16].view(4, 4)); "
     "self.b{i} = nn.Parameter(b[16:])", "x = F.linear(x, self.a{i}, self.b{i})"),
    ("b = T.zeros(2, 4, 4); self.a{i} = nn.ParameterList([nn.Parameter(t) for t in b.unbind()])",
     "x = x @ self.a{i}[0] + x @ self.a{i}[1].t()"),
    ("b = T.zeros(4, 4); self.a{i} = nn.Parameter(b); self.b{i} = nn.Parameter(b.t())",
     "x = x @ self.a{i} + (x @ self.b{i}).tanh()"),
    ("self.a{i} = nn.ParameterDict({{'w': nn.Parameter(T.zeros(4, 4).t()), "
     "'unused': nn.Parameter(T.zeros(2))}})", "x = x @ self.a{i}['w']"),
    ("self.a{i} = nn.Linear(4, 4); self.b{i} = nn.Linear(4, 4); "
     "self.b{i}.weight = self.a{i}.weight", "x = self.b{i}(self.a{i}(x).relu())"),
    ("self.a{i} = nn.Linear(4, 4); self.b{i} = self.a{i}", "x = self.b{i}(self.a{i}(x).tanh())"),
    ("self.a{i} = nn.Linear(4, 4); self.b{i} = nn.Linear(4, 4); "
     "self.b{i}.weight.data = self.a{i}.weight.data", "x = self.b{i}(self.a{i}(x).tanh())"),
    ("self.a{i} = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))", "x = self.a{i}(x)"),
    ("self.a{i} = nn.utils.weight_norm(nn.Linear(4, 4))", "x = self.a{i}(x)"),
    ("self.register_buffer('a{i}', T.ones(4)); self.b{i} = nn.Linear(4, 4)",
     "self.a{i}.mul_(0.9).add_(x.detach().mean(0), alpha=0.1); x = self.b{i}(x) * self.a{i}"),
    ("self.a{i} = nn.Linear(4, 4).requires_grad_(False)", "x = self.a{i}(x)"),
    ("self.a{i} = nn.Sequential(nn.Linear(4, 4), nn.Tanh())",
     "x = checkpoint(self.a{i}, x, use_reentrant=False)"),
    ("self.a{i} = nn.Bilinear(4, 4, 4)", "x = self.a{i}(x, x)"),
)  # fmt: skip
TABLES = ("", "", ", padding_idx=1", ", scale_grad_by_freq=True", ", max_norm=0.5")


@dataclass(frozen=True)
class Made:
    """A model and its input, by their names."""

    name: str
    input: str
    sparse: bool


def model(d: Draw, n: int) -> Made:
    """A class of several parts, and one of it in which both libraries have put the same numbers."""
    kind = d.rng.random()
    if kind < 0.12:
        return _tables(d, n)
    if kind < 0.3:
        first = (f"self.first = nn.Embedding(5, 4{d.choice(TABLES)})", "x = self.first(x)")
        x = f"T.tensor({[d.rng.randint(0, 4) for _ in range(n)]})"
    else:
        first = ("self.first = nn.Linear(3, 4)", "x = self.first(x)")
        x = d.literal([n, 3], d.dtypes[0])
    parts = [d.choice(PARTS) for _ in range(d.rng.randint(0, 3))]
    parts = [tuple(text.format(i=i) for text in part) for i, part in enumerate(parts)]
    name = _made(d, [first, *parts, ("self.last = nn.Linear(4, 2)", "x = self.last(x)")], x)
    return Made(name, x, False)


def _tables(d: Draw, n: int) -> Made:
    """Tables with sparse gradients, one of them looked into twice now and then."""
    option = d.choice(("", "", ", padding_idx=1", ", scale_grad_by_freq=True"))
    parts = [(f"self.t = nn.Embedding(5, 2, sparse=True{option})",
              d.choice(("x = self.t(x)", "x = self.t(x) + self.t(x.flip(0))",
                        "x = self.t(x[:1]) * self.t(x)")))]  # fmt: skip
    if d.chance(0.4):
        parts[0] = ("self.u = nn.EmbeddingBag(5, 2, sparse=True, mode='sum')",
                    "x = self.u(x[:, None])")  # fmt: skip
    x = f"T.tensor({[d.rng.randint(0, 4) for _ in range(n)]})"
    return Made(_made(d, parts, x), x, True)


def _made(d: Draw, parts: list[tuple[str, ...]], x: str) -> str:
    inits = "".join(f"        {init}\n" for init, _ in parts)
    lines = "".join(f"        {line}\n" for _, line in parts)
    text = (
        "nn = T.nn\n"
        "checkpoint = getattr(T.autograd, 'checkpoint', None) or T.utils.checkpoint.checkpoint\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"{inits}    def forward(self, x):\n{lines}        return x\n"
    )
    assert d.add(text), text
    made = d.let(f"new({x}, T.{d.dtypes[0]})")
    assert made is not None, text
    return made
