"""Small networks with everything that may depend on how work is divided, and their data."""

from __future__ import annotations

import numpy as np

import disttrain as dt
from disttrain import nn

F = nn.functional
STEPS, BATCH = 3, 16


class TinyGPT(nn.Module):
    """One block, with dropout and embeddings."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.drop = nn.Dropout(0.2)
        self.scores = nn.Linear(16, 4)

    def forward(self, codes):
        x = self.drop(self.tokens(codes))
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.drop(self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        return self.scores(x).mean(1)


def mlp():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 4)
    )


class Tied(nn.Module):
    """One weight embeds and scores."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 16)
        self.mix = nn.Linear(16, 16)
        self.scores = nn.Linear(16, 11, bias=False)
        self.scores.weight = self.tokens.weight

    def forward(self, codes):
        return self.scores(dt.tanh(self.mix(self.tokens(codes)))).mean(1)


class Adapted(nn.Module):
    """A frozen network with a trained correction of low rank."""

    def __init__(self):
        super().__init__()
        self.base = mlp().requires_grad_(False)
        self.down, self.up = nn.Linear(12, 2, bias=False), nn.Linear(2, 4, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


INPUTS = {
    "tied": lambda rng, n: rng.integers(0, 11, (n, 6)),
    "adapted": lambda rng, n: rng.standard_normal((n, 12)).astype(np.float32),
    "mlp": lambda rng, n: rng.standard_normal((n, 12)).astype(np.float32),
    "cnn": lambda rng, n: rng.standard_normal((n, 1, 4, 4)).astype(np.float32),
    "gpt": lambda rng, n: rng.integers(0, 11, (n, 6)),
}
MODELS = {"mlp": mlp, "cnn": cnn, "gpt": TinyGPT, "tied": Tied, "adapted": Adapted}


def task(name):
    rng = np.random.default_rng(0)
    n = BATCH * STEPS + 5
    return dt.data.TensorDataset(
        dt.from_numpy(INPUTS[name](rng, n)), dt.from_numpy(rng.integers(0, 4, n))
    )


def bits(state):
    """The raw bytes of a state's model."""
    return {n: t.numpy().tobytes() for n, t in state["model"].items()}
