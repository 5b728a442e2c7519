"""Dimensions found by running a program's loss on the meta device."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import nn
from disttrain.cli.plan import load_subject
from disttrain.distributed.planning import Subject, transformer_of_program
from disttrain.errors import ConfigError

ROOT = Path(__file__).parents[3]


class Block(nn.Module):
    def __init__(self, hidden, heads, groups, width, gated):
        super().__init__()
        dim = hidden // heads
        self.shape = heads, groups, dim
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) * dim, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.up = nn.Linear(hidden, width, bias=False)
        self.gate = nn.Linear(hidden, width, bias=False) if gated else None
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        heads, groups, dim = self.shape
        batch, seq, hidden = x.shape
        q, k, v = self.qkv(x).split([heads * dim, groups * dim, groups * dim], -1)
        q, k, v = (
            t.reshape(batch, seq, n, dim).transpose(1, 2)
            for t, n in ((q, heads), (k, groups), (v, groups))
        )
        if groups != heads:
            k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, seq, hidden))
        wide = F.gelu(self.up(x))
        return x + self.down(wide if self.gate is None else wide * self.gate(x))


class Model(nn.Module):
    def __init__(self, layers=2, hidden=64, heads=4, width=256, gated=False, vocab=100):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(
            [Block(hidden, heads, heads, width, gated) for _ in range(layers)]
        )
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def subject(build, seq=32):
    def loss(model, batch):
        ids = dt.zeros(batch, seq, dtype=dt.int64, device="meta")
        return model(ids).sum()

    return Subject(build, loss, 8)


@pytest.mark.parametrize(("given", "width", "gated"), [
    ({}, 256, False), ({"width": 192, "gated": True}, 192, True), ({"layers": 3}, 256, False),
])  # fmt: skip
def test_dimensions_of_a_program(given, width, gated):
    found, seq = transformer_of_program(subject(lambda: Model(**given)))
    assert (found.layers, found.hidden, found.heads) == (given.get("layers", 2), 64, 4)
    assert (found.width, found.gated, found.vocab, found.tied) == (width, gated, 100, False)
    assert (seq, found.dim, found.biases, found.positions) == (32, 16, False, 0)


def test_the_programs_of_the_project():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        words = ["--config", str(ROOT / "configs" / "gpt_char.toml")]
        found, seq = transformer_of_program(load_subject(ROOT / "scripts" / "train.py", words))
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    assert (found.layers, found.hidden, found.heads, seq) == (2, 96, 4, 64)
    assert found.positions == 64 and found.biases


class Wider(Model):
    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(64, 1000)

    def forward(self, ids):
        return super().forward(ids)


def test_what_is_no_such_transformer_is_told():
    for build, message in (
        (lambda: nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10)), "runs 0 kinds of attention"),
        (Wider, "a transformer of its dimensions"),
    ):
        with pytest.raises(ConfigError, match=message):
            transformer_of_program(subject(build))
