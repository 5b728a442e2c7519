"""Programs with one mistake each, in ways that differ from those in ``tests/sanitize``: what is to
be found in each of them.

Each row of ``PROGRAMS`` is a kind, and a function without arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import disttrain as dt
from disttrain import nn
from disttrain.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
)
from disttrain.nn import functional as F
from disttrain.optim import lr_scheduler as schedules

from .sanitized import Net, batch, train

PROGRAMS: list[tuple[str, Callable[[], Any]]] = []


def program(kind: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Add a row."""

    def add(fn: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS.append((kind, fn))
        return fn

    return add


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def loss_of(model: nn.Module) -> dt.Tensor:
    x, y = batch()
    return F.cross_entropy(model(x), y)


@program("gradients-never-zeroed")
def a_closure_that_never_clears():
    model = small()
    optimizer = dt.optim.LBFGS(model.parameters(), max_iter=2)
    for _ in range(6):

        def closure():
            loss = loss_of(model)
            loss.backward()
            return loss

        optimizer.step(closure)


@program("gradients-never-zeroed")
def groups_of_a_fused_optimizer():
    model = small()
    groups = [{"params": [p], "lr": 0.01} for p in model.parameters()]
    optimizer = dt.optim.AdamW(groups, fused=True)
    scaler = dt.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(6):
        with dt.autocast("cpu", dtype=dt.bfloat16):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@program("gradients-never-zeroed")
def a_compiled_model():
    model = dt.compile(small())
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        loss_of(model).backward()
        optimizer.step()


@program("gradients-cleared-before-step")
def zeros_that_are_written_by_hand():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        loss_of(model).backward()
        for p in model.parameters():
            p.grad.zero_()
        optimizer.step()


@program("gradients-cleared-before-step")
def zeros_instead_of_none():
    model = small()
    optimizer = dt.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(6):
        loss_of(model).backward()
        model.zero_grad(set_to_none=False)
        optimizer.step()


@program("parameter-without-gradient")
def data_of_a_first_layer():
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(self.first(x).relu().data)

    model = Cut()
    train(model, dt.optim.Adam([{"params": [p]} for p in model.parameters()]), 14)


@program("train-mode-in-evaluation")
def an_evaluation_from_a_generator():
    class Stream(IterableDataset):
        def __iter__(self):
            for _ in range(16):
                yield dt.randn(4), dt.tensor(1)

    model = Net()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
    training, test = DataLoader(Stream(), 4), DataLoader(Stream(), 4)
    for _ in range(3):
        for x, y in training:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with dt.inference_mode():
            [model(x) for x, _ in test]


@program("dropout-in-evaluation")
def alpha_dropout():
    class Drops(nn.Module):
        def forward(self, x):
            return F.alpha_dropout(x, 0.5, training=True)

    with dt.no_grad():
        Drops().eval()(dt.randn(4, 4))


@program("non-finite-forward")
def a_compiled_model_that_breaks_late():
    class Divided(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(4, 3)

        def forward(self, x, by):
            return self.last(x) / by

    model = dt.compile(Divided())
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
    for i in range(8):
        optimizer.zero_grad()
        F.mse_loss(model(batch()[0], dt.tensor(float(i != 5))), dt.zeros(8, 3)).backward()
        optimizer.step()


@program("non-finite-forward")
def a_compiled_step_that_gives_nothing():
    model = nn.Linear(4, 3)
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)

    @dt.compile
    def step(x, by):
        optimizer.zero_grad()
        (model(x) / by).pow(2).mean().backward()
        optimizer.step()

    for i in range(8):
        step(batch()[0], dt.tensor(float(i < 4)))


@program("dead-activations")
def values_that_are_clamped():
    class Clamped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 32), nn.Linear(32, 3)
            nn.init.constant_(self.first.bias, -50.0)

        def forward(self, x):
            return self.last(self.first(x).clamp(min=0))

    model = Clamped()
    train(model, dt.optim.SGD(model.parameters(), lr=0.01), 100)


@program("learning-rate-zero")
def schedules_one_after_the_other():
    model = small()
    optimizer = dt.optim.AdamW(model.parameters())
    parts = [schedules.LinearLR(optimizer, 0.1, 1.0, 4), schedules.PolynomialLR(optimizer, 8)]
    scheduler = schedules.SequentialLR(optimizer, parts, [4])
    for _ in range(24):
        train(model, optimizer, 1)
        scheduler.step()


@program("scheduler-too-seldom")
def warm_up_and_cosine_once_per_epoch():
    model = small()
    optimizer = dt.optim.AdamW(model.parameters())
    parts = [schedules.LinearLR(optimizer, 0.1, 1.0, 8), schedules.CosineAnnealingLR(optimizer, 32)]
    scheduler = schedules.SequentialLR(optimizer, parts, [8])
    for _ in range(4):
        train(model, optimizer, 10)
        scheduler.step()


@program("clip-before-unscale")
def a_scaled_loss_that_is_divided():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    scaler = dt.amp.GradScaler("cpu")
    for _ in range(4):
        optimizer.zero_grad()
        (scaler.scale(loss_of(model)) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@program("missing-set-epoch")
def a_sampler_with_an_order_of_its_own():
    class Own(DistributedSampler):
        def __iter__(self):
            order = dt.randperm(32, generator=dt.Generator().manual_seed(self.epoch)).tolist()
            return iter(order[self.rank :: self.num_replicas])

    data = TensorDataset(*batch(32))
    loader = DataLoader(data, batch_sampler=BatchSampler(Own(data, 2, 0), 4, False))
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


@program("parameter-never-used")
def layers_that_are_left_out():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.layers[0](x))

    model = Part()
    train(model, dt.optim.AdamW(model.parameters(), fused=True), 20)
