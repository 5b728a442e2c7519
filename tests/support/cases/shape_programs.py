"""Random programs whose sizes change from call to call, as text.

A program is a function ``f(x, state)`` of pieces, each of which goes from a tensor of three
dimensions, the last of size 4, to another one; ``draw(seed)`` gives (its pieces, how it ends, the
sizes of its calls). What pieces do depends on sizes: views with -1, joins, masks, loops, counts,
decisions, layers, random numbers, writes in place.
"""

from __future__ import annotations

import random

HEAD = """
import math
import disttrain as dt
F = dt.nn.functional

def make():
    dt.manual_seed({seed})
    nn, m = dt.nn, {{}}
    m["linear"] = nn.Linear(4, 4)
    m["conv"] = nn.Conv1d(4, 4, 3, padding=1)
    m["flat"] = nn.Conv2d(1, 1, 3, padding=1)
    m["norm"] = nn.LayerNorm(4)
    m["batch"] = nn.BatchNorm1d(4)
    m["group"] = nn.GroupNorm(2, 4)
    m["rnn"] = nn.GRU(4, 4, batch_first=True)
    m["lstm"] = nn.LSTM(4, 4, batch_first=True)
    m["heads"] = nn.MultiheadAttention(4, 2, batch_first=True)
    m["table"] = nn.Embedding(7, 4)
    m["seen"] = dt.zeros(4)
    m["scale"] = dt.tensor(0.5)
    params = [p for v in m.values() if isinstance(v, nn.Module) for p in v.parameters()]
    m["optimizer"] = dt.optim.{optimizer}(params, lr=0.01)
    return m, params

def f(h, m):
"""

PIECES = [
    "h = (h * 1.5 + 0.25).relu() - h",
    "h = h.sin() + h.exp().clamp(max=3.0)",
    "h = h.reshape(-1, 4).reshape(h.shape)",
    "h = h.view(h.shape[0], -1).view(*h.shape) * 2",
    "h = h.view(-1).view(h.size(0), h.size(1), 4)",
    "h = h.transpose(0, 1).contiguous().transpose(0, 1)",
    "h = h.transpose(0, 1).reshape(-1, 4).view(h.shape[1], h.shape[0], 4).permute(1, 0, 2)",
    "h = h.flatten(0, 1).unflatten(0, (h.shape[0], h.shape[1]))",
    "h = dt.cat([h, h * 2], dim=1)[:, : h.shape[1]]",
    "h = dt.cat([h[:, 1:], h[:, :1]], dim=1)",
    "h = dt.cat([h, h.mean(dim=1, keepdim=True)], dim=1)",
    "h = h[:, : h.shape[1] // 2 + 1]",
    "h = h[:, ::2]",
    "h = h[1:] if h.shape[0] > 3 else h * 0.5",
    "h = h.flip(1)",
    "h = dt.roll(h, 1, 1)",
    "h = h + dt.arange(h.shape[1]).view(1, -1, 1) * 0.1",
    "h = h * dt.linspace(0.0, 1.0, 4)",
    "h = h + dt.zeros(h.shape[0], 1, 4) + dt.ones(h.shape[1], 4) * 0.5",
    "h = h + dt.full((h.shape[1], 1), 0.25)",
    "h = h + dt.ones_like(h) * h.shape[1]",
    "h = h / h.shape[0] + h.shape[1] * 0.01",
    "h = h * (1.0 / math.sqrt(h.shape[-1])) * h.shape[1] ** -0.5",
    "h = h - h.sum() / h.numel()",
    "h = h - h.mean(dim=(0, 1))",
    "h = h / (h.std(dim=1, keepdim=True) + 1.0)",
    "h = dt.softmax(h, dim=1)",
    "h = h.log_softmax(-1)",
    "h = h.cumsum(1) * 0.1",
    "h = h.masked_fill(dt.arange(h.shape[1])[None, :, None] > h.shape[1] // 2, 0.5)",
    "h = dt.where(h > 0, h, h.sum(1, keepdim=True))",
    "h = dt.tril(dt.ones(h.shape[1], h.shape[1])) @ h * 0.1",
    "h = dt.einsum('btc,bsc->bts', h, h) @ h * 0.05",
    "h = (h @ h.transpose(1, 2)).softmax(-1) @ h",
    "h = dt.bmm(h, h.transpose(1, 2)).tril() @ h * 0.05",
    "h = F.scaled_dot_product_attention(h, h, h, is_causal=True)",
    "h = m['heads'](h, h, h, need_weights=False)[0]",
    "h = m['linear'](h)",
    "h = m['norm'](h)",
    "h = m['batch'](h.transpose(1, 2)).transpose(1, 2)",
    "h = m['group'](h.transpose(1, 2)).transpose(1, 2)",
    "h = m['conv'](h.transpose(1, 2)).transpose(1, 2)",
    "h = m['flat'](h.unsqueeze(1)).squeeze(1)",
    "h = F.avg_pool1d(h.transpose(1, 2), 3, 1, 1).transpose(1, 2)",
    "h = F.max_pool1d(h.transpose(1, 2), 3, 1, 1).transpose(1, 2)",
    "h = F.pad(h, (0, 0, 1, 1))",
    "h = F.dropout(h, 0.3)",
    "h = h + dt.rand(h.shape[0], h.shape[1], 1)",
    "h = h + dt.randn_like(h) * 0.1",
    "h = m['rnn'](h)[0]",
    "h = m['lstm'](h)[0]",
    "h = h + m['table'](dt.arange(h.shape[1]) % 7)",
    "h = sum(h[:, i : i + 1] for i in range(min(h.shape[1], 3))) + h",
    "h = dt.stack([h[:, i] for i in range(h.shape[1])], dim=1)",
    "h = h.expand(2, *h.shape).mean(0)",
    "h = h.repeat(1, 2, 1)[:, h.shape[1] :]",
    "h = h.unsqueeze(0).expand(3, -1, -1, -1)[1] * 1.5",
    "h = h[:, dt.arange(h.shape[1])]",
    "h = h.gather(1, dt.zeros(h.shape[0], h.shape[1], 4, dtype=dt.int64))",
    "h = h.index_select(1, dt.arange(h.shape[1] - 1))",
    "h = h.topk(2, dim=-1)[0].repeat(1, 1, 2)",
    "h = h.sort(dim=1)[0]",
    "h = h.split(1, dim=0)[0] + h",
    "h = dt.cat(h.chunk(2, dim=1), dim=1)",
    "a, b = h.split([2, 2], dim=-1); h = dt.cat([b, a], dim=-1)",
    "with dt.no_grad(): m['seen'].mul_(0.5).add_(h.detach().mean((0, 1)))\n    h = h - m['seen']",
    "y = h.clone(); y[:, 1:] = h[:, :-1]; h = y",
    "y = dt.zeros_like(h); y[:, : h.shape[1] // 2] += 1.0; h = h + y",
    "y = dt.zeros(h.shape[0], h.shape[1], 4); y.copy_(h.detach()); h = h + y.mul_(0.5)",
    "h = h.add(1.0).mul_(0.5)",
    "h = h * m['scale']",
    "h = h.detach() * 0.5 + h",
    "h = h * 2 if h.shape[1] % 2 else h - 1",
    "h = h * 0.5 if h.shape[0] == h.shape[1] else h",
    "h = h.square() if len(h) > 4 else h.abs()",
    "h = h.double().float() * 0.5",
    "h = h.amax(dim=1, keepdim=True) - h",
    "h = h - h.logsumexp(dim=(0, 1))",
    "h = h.norm(dim=-1, keepdim=True) * 0.1 + h",
    "h = F.layer_norm(h, h.shape[1:])",
    "h = F.interpolate(h.transpose(1, 2), size=h.shape[1]).transpose(1, 2)",
    "h = h.movedim(0, 1).movedim(1, 0)",
    "h = h.diagonal(dim1=0, dim2=1).sum() * 0.01 + h",
    "h = h.unfold(1, 2, 1).mean(-1)",
    "h = h + h.new_zeros(h.shape) + h.new_full((h.shape[1], 4), 0.5)",
    "h = h + dt.eye(h.shape[1], 4)",
    "h = h.clamp(-h.shape[1] * 0.5, 1.0)",
]

ENDS = {
    "value": "return h",
    "several": "return h, h.shape[1] * 2, h.sum(1), [h.numel() / 3]",
    "view": "return h.view(-1) if h.is_contiguous() else h.reshape(-1)",
    "loss": "return h.square().mean()",
    "step": """loss = F.mse_loss(h, dt.ones_like(h))
    m['optimizer'].zero_grad()
    loss.backward()
    m['optimizer'].step()
    return loss""",
    "classes": """loss = F.cross_entropy(h.reshape(-1, 4), dt.arange(h.shape[0] * h.shape[1]) % 4)
    m['optimizer'].zero_grad()
    loss.backward()
    dt.nn.utils.clip_grad_norm_(m['linear'].parameters(), 1.0)
    m['optimizer'].step()
    return loss, h.shape[0]""",
}

Drawn = tuple[list[str], str, list[tuple[int, int]]]


def draw(seed: int) -> Drawn:
    """The pieces of a program, how it ends, and the sizes of its calls."""
    r = random.Random(seed)
    pieces = [r.choice(PIECES) for _ in range(r.randint(1, 5))]
    end = r.choice(list(ENDS))
    fixed = r.random() < 0.4
    first = r.randint(2, 6)
    sizes = [(first if fixed else r.randint(1, 6), r.randint(3, 9)) for _ in range(7)]
    return pieces, end, sizes + sizes[:2]


def text(seed: int, pieces: list[str], end: str) -> str:
    """The program, as a module with ``make`` and ``f``."""
    optimizer = random.Random(seed).choice(["SGD", "AdamW", "Adam"])
    body = "".join(f"    {piece}\n" for piece in [*pieces, ENDS[end]])
    return HEAD.format(seed=seed, optimizer=optimizer) + body
