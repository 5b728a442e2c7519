"""Learning rates, when schedulers step, loss scales, and what weight decay is for."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn import functional as F
from disttrain.nn.utils import clip_grad_norm_
from disttrain.optim import lr_scheduler as schedules
from support.sanitized import Net, batch, kinds

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of")


def run(order: str, make=None, times: int = 8, accumulate: int = 1):
    """A loop of these calls: o(ptimizer), s(cheduler), m(icro-batch)."""
    model = Net()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    scheduler = (make or (lambda o: schedules.StepLR(o, 100)))(optimizer)

    def micro() -> None:
        x, y = batch()
        F.cross_entropy(model(x), y).backward()

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    calls = {"o": step, "s": scheduler.step, "m": micro}
    for _ in range(times):
        for letter in order:
            calls[letter]()
    return scheduler


@pytest.mark.parametrize(
    "order, found",
    [
        ("mos", set()),
        ("mosmo", set()),
        ("momomos", set()),
        ("mso", {"scheduler-before-optimizer"}),
        ("smo", {"scheduler-before-optimizer"}),
        ("smomo", {"scheduler-before-optimizer"}),
        ("msmso", {"scheduler-too-often"}),
        ("msmsmso", {"scheduler-too-often"}),
    ],
)
def test_the_order_of_steps(order, found):
    assert kinds(lambda: run(order)) == found


def test_a_schedule_that_is_wound_forward():
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
        scheduler = schedules.StepLR(optimizer, 10)
        for _ in range(7):
            scheduler.step()
        for _ in range(6):
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()

    assert kinds(body) == set()


def test_a_schedule_for_steps_that_is_stepped_by_epochs():
    def body(order, total):
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
        scheduler = schedules.OneCycleLR(optimizer, 0.1, total_steps=total)
        with dt.sanitize(quiet=True) as watch:
            for i in range(40):
                x, y = batch()
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                if i % order == order - 1:
                    scheduler.step()
        return {f.kind for f in watch.findings if f.severity != "advice"}

    assert body(10, 42) == {"scheduler-too-seldom"}
    assert body(1, 42) == body(10, 5) == set()


@pytest.mark.parametrize(
    "make, times, told",
    [
        (lambda o: schedules.LambdaLR(o, lambda e: min(1.0, e / 5)), 20, False),  # a warm-up
        (lambda o: schedules.LinearLR(o, 1.0, 0.0, 20), 20, False),
        (lambda o: schedules.LinearLR(o, 1.0, 0.0, 10), 20, True),
        (lambda o: schedules.ExponentialLR(o, 0.01), 20, True),
        (lambda o: schedules.LambdaLR(o, lambda e: 0.0 if e < 60 else 1.0), 55, True),
        (lambda o: schedules.CosineAnnealingLR(o, 5), 55, False),
    ],
)
def test_rates_of_zero(make, times, told):
    found = {"learning-rate-zero"} if told else set()
    assert kinds(lambda: run("mos", make, times)) == found


@pytest.mark.parametrize("clip", ["clip_grad_norm_", "clip_grad_value_"])
@pytest.mark.parametrize("unscale", [True, False])
def test_clipping_before_unscaling(clip, unscale):
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
        scaler = dt.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(4):
            x, y = batch()
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            if unscale:
                scaler.unscale_(optimizer)
            getattr(nn.utils, clip)(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    assert kinds(body) == (set() if unscale else {"clip-before-unscale"})


def test_clipping_to_a_limit_that_is_scaled_too_and_without_a_scaler():
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
        scaler = dt.amp.GradScaler("cpu", init_scale=1024.0)
        for scaled in (True, False) * 2:
            x, y = batch()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            (scaler.scale(loss) if scaled else loss).backward()
            clip_grad_norm_(model.parameters(), 1024.0 if scaled else 1.0)
            if scaled:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()

    assert kinds(body) == set()


def test_a_step_that_a_scaler_skips_at_first():
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
        scheduler = schedules.StepLR(optimizer, 10)
        scaler = dt.amp.GradScaler("cpu", init_scale=2.0**127)
        for _ in range(6):
            x, y = batch()
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()

    assert kinds(body) == set()


@pytest.mark.parametrize("decay", [0.1, 0.0])
def test_weight_decay_on_norms(decay):
    def body():
        model = Net()
        groups = [
            {"params": list(model.norm.parameters()), "weight_decay": decay},
            {"params": [p for n, p in model.named_parameters() if "norm" not in n]},
        ]
        optimizer = dt.optim.AdamW(groups, lr=0.1)
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    assert kinds(body) == set()
    assert kinds(body, advice=True) == ({"weight-decay-on-norms"} if decay else set())


def test_rates_of_some_groups_alone():
    def body():
        model = nn.Linear(4, 3)
        optimizer = dt.optim.SGD([{"params": [model.weight], "lr": 0.0},
                                  {"params": [model.bias], "lr": 0.1}])  # fmt: skip
        for _ in range(60):
            optimizer.zero_grad()
            model(dt.randn(2, 4)).mean().backward()
            optimizer.step()

    assert kinds(body) == set()
