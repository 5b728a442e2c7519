"""Training steps on the device stand-in with generated kernels: eager's bits, in fewer launches and
less memory; and steps that look at what they compute."""

from __future__ import annotations

import warnings

import pytest
from benchmarks.models import make_gpt

import disttrain as dt
from disttrain import nn, optim
from disttrain.compile.passes import region

pytestmark = pytest.mark.usefixtures("double")
F = nn.functional
STEPS = 5


def mlp():
    layers = [nn.Linear(12, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(16, 5)), lambda n: dt.randn(6, 12, generator=n)


def cnn():
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(), nn.MaxPool2d(2)]
    last = [nn.Flatten(), nn.Hardtanh(), nn.Linear(64, 5)]
    return nn.Sequential(*layers, *last), lambda n: dt.randn(6, 2, 8, 8, generator=n)


def gpt():
    model = make_gpt(dt, vocab=5, width=16, heads=2, layers=2, context=8)
    return model, lambda n: dt.randint(0, 5, (3, 8), generator=n)


def trained(make, kind, wrap=lambda step: step):
    """What steps leave: losses, weights, gradients, buffers, as bytes; and the step."""
    dt.manual_seed(0)
    model, draw = make()
    model = model.cuda().to(dt.bfloat16 if kind == "bfloat16" else dt.float32)
    params = list(model.parameters())
    optimizer = optim.AdamW(params, lr=0.01)
    numbers = dt.Generator().manual_seed(3)

    def step(x, y):
        optimizer.zero_grad()
        with dt.autocast("cuda", dt.bfloat16, enabled=kind == "autocast"):
            scores = model(x)
            loss = F.cross_entropy(scores.flatten(0, -2), y) + 0.01 * scores.square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        return loss

    run, losses = wrap(step), []
    for i in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)
        x = draw(numbers)
        y = dt.randint(0, 5, (x.numel() if make is gpt else 6,), generator=numbers)
        x = x if make is gpt or kind != "bfloat16" else x.bfloat16()
        losses.append(run(x.cuda(), y.cuda()))
    kept = [*losses, *params, *[p.grad for p in params], *model.buffers()]
    return [t.detach().cpu().view(dt.uint8).numpy().tobytes() if t.ndim else t.item() for t in kept], run


def kernels(run):
    """Of all graphs: how often a kernel stands for operations, and writes over operands."""
    prims = [ins.prim for graph in run.graphs for ins in graph.instructions]
    return [p.region for p in prims if isinstance(p, region.Fused) and p.region.kernels]


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("make", [mlp, cnn, gpt])
def test_a_training_step_has_eagers_bits(make, kind):
    wanted, _ = trained(make, kind)
    for options in ({}, {"activation_memory_budget": 0.4}, {"triton.cudagraphs": True}):
        got, run = trained(make, kind, lambda step, o=options: dt.compile(step, options=o))
        assert got == wanted, options
        assert not run.eager and kernels(run), run.explain()
