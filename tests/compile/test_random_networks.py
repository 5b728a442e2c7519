"""Drawn networks and their training steps: compiled ones give eager's bits, over several calls.

Layers, losses, optimizers and sizes are drawn so that biases, masks, places of pools, updates of
many parameters and recomputation come together in many ways.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile.passes import masks, pools, products, recomputation, region
from support.agree import difference

F = nn.functional
PARTS, EACH, CALLS = 8, 6, 5
WIDE = [3, 8, 16, 64]
OPTIMIZERS = {
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"weight_decay": 0.1}],
    "AdamW": [{}, {"amsgrad": True}, {"maximize": True}],
    "Adam": [{"weight_decay": 0.01}],
    "RMSprop": [{}, {"centered": True, "momentum": 0.5}],
    "Adagrad": [{}],
    "NAdam": [{}],
    "RAdam": [{}],
}


def flat_layers(r, width):
    """Layers on (rows, width), and the width that comes out."""
    layers = []
    for _ in range(r.randint(1, 4)):
        out = r.choice(WIDE)
        layers.append(nn.Linear(width, out, bias=r.random() < 0.8))
        width = out
        layers += r.choice(
            [[nn.ReLU()], [nn.GELU()], [nn.Tanh()], [nn.LayerNorm(width)], [nn.SiLU()], [],
             [nn.ReLU(), nn.Dropout(0.2)], [nn.LayerNorm(width), nn.ReLU()], [nn.LeakyReLU(0.1)],
             [nn.ReLU(inplace=True)], [Residual(width)]]
        )  # fmt: skip
    return layers, width


def image_layers(r, channels):
    """Layers on (samples, channels, 12, 12), and how many numbers of a sample come out."""
    layers, size = [], 12
    for _ in range(r.randint(1, 2)):
        out = r.choice([4, 8])
        layers.append(nn.Conv2d(channels, out, 3, padding=1))
        channels = out
        layers += r.choice([[nn.ReLU()], [nn.GELU()], [nn.ReLU(), nn.BatchNorm2d(out)], []])
        kernel, stride, padding = r.choice([(2, 2, 0), (3, 2, 1), (2, 1, 0), (3, 3, 0), (2, 2, 1)])
        layers.append(nn.MaxPool2d(kernel, stride, padding))
        size = (size + 2 * padding - kernel) // stride + 1
        layers += r.choice([[nn.ReLU()], []])
    return [*layers, nn.Flatten()], channels * size * size


class Residual(nn.Module):
    """What a network adds to what it is given."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def losses(r, rows, classes, gen):
    """A function of what the network gives."""
    target = gen.integers(0, classes, rows)
    if r.random() < 0.3:
        target[:2] = -100
    how = {
        "reduction": r.choice(["mean", "sum", "none"]),
        "label_smoothing": r.choice([0.0, 0.0, 0.1]),
    }
    target, goal = dt.from_numpy(target), dt.from_numpy(gen.normal(size=(rows, classes)))
    if r.random() < 0.7:
        return lambda y: F.cross_entropy(y, target, **how).sum() * 0.5
    goal = goal.float()
    return lambda y: F.mse_loss(y, goal)


def maker(seed):
    r = random.Random(seed)

    def make():
        r.seed(seed)
        dt.manual_seed(seed)
        gen, rows = np.random.default_rng(seed), r.choice([1, 2, 7, 65, 600])
        if r.random() < 0.4:
            rows = min(rows, 65)
            layers, width = image_layers(r, 3)
            x = gen.normal(size=(rows, 3, 12, 12))
        else:
            layers, width = [], r.choice(WIDE)
            x = gen.normal(size=(rows, width) if r.random() < 0.7 else (rows // 2 + 1, 2, width))
        more, classes = flat_layers(r, width)
        model = nn.Sequential(*layers, *more)
        kind = r.choice([dt.float32, dt.float32, dt.float32, dt.float64])
        model, x = model.to(kind), dt.from_numpy(x).to(kind)
        loss_of = losses(r, rows if x.dim() != 3 else 2 * len(x), classes, gen)
        for p in model.parameters():
            if r.random() < 0.1:
                p.requires_grad_(False)
        name = r.choice(list(OPTIMIZERS))
        trained = [p for p in model.parameters() if p.requires_grad]
        groups = [{"params": trained[::2]}, {"params": trained[1::2], "lr": 0.02}]
        groups = [g for g in groups if g["params"]] if r.random() < 0.4 else trained
        if not trained:
            trained = groups = [nn.Parameter(dt.ones(3))]
        optimizer = getattr(dt.optim, name)(groups, lr=0.01, **r.choice(OPTIMIZERS[name]))
        clip, keep, schedule = r.random() < 0.3, r.random() < 0.3, r.random() < 0.3
        stray = r.random() < 0.2

        def step(x):
            if not keep:
                optimizer.zero_grad()
            y = model(x)
            loss = loss_of(y.reshape(-1, y.shape[-1]))
            loss = loss.to(kind) + sum(p.sum() for p in trained) * 0.01
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(trained, 0.5)
            optimizer.step()
            return loss, y

        def between(i, run):
            given = x * (1 + i)
            if schedule and i:
                optimizer.param_groups[-1]["lr"] *= 0.5
            if stray and i == 3:
                for state in list(optimizer.state.values())[:1]:
                    if "step" in state:
                        state["step"] += 2.0  # its count is not that of the others any more
            return run(given)

        def look():
            state = [s for each in optimizer.state.values() for s in each.values()]
            return [*model.parameters(), *model.buffers(), *(t for t in state if t is not None)]

        return step, between, look

    return make


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_networks_learn_as_eager_ones(part, monkeypatch):
    monkeypatch.setattr(region, "_RUNS", part % 2)
    if part % 4 < 2:  # what is small is worth it, too
        monkeypatch.setattr(recomputation, "_LEAST", 0)
        for module in (masks, pools, products):
            monkeypatch.setattr(module, "LEAST", 0)
    for seed in range(part * EACH, (part + 1) * EACH):
        why = difference(maker(seed), CALLS)
        assert why is None, f"seed {seed}\n{why}"
