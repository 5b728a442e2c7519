"""Units that were zero for all that was seen."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from support.sanitized import Net, findings, kinds, train


@pytest.mark.parametrize("functional", [True, False])
@pytest.mark.parametrize("bias", [-100.0, 0.0])
def test_a_layer_that_has_died(functional, bias):
    def body():
        model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
        if functional:
            model = Net(dropout=0.0, norm=False)
        first = model.first if functional else model[0]
        with dt.no_grad():
            first.bias.fill_(bias)
        train(model, dt.optim.SGD(model.parameters(), lr=0.01), 100)

    found = findings(body)
    assert [f.kind for f in found] == ["dead-activations"] * (bias < 0)
    assert all("units were zero" in f.message for f in found)


def test_most_units_of_a_wide_layer():
    def body(dead: int):
        model = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 3))
        with dt.no_grad():
            model[0].bias[:dead] = -100.0
        train(model, dt.optim.SGD(model.parameters(), lr=0.01), 1000)

    assert kinds(lambda: body(38)) == {"dead-activations"}
    assert kinds(lambda: body(20)) == set()


def test_losses_that_are_zero_and_layers_of_few_units():
    def body():
        model = nn.Linear(4, 8)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(100):
            a, b = model(dt.randn(16, 4)), model(dt.randn(16, 4))
            optimizer.zero_grad()
            ((1e-9 - dt.cdist(a, b)).relu().mean() + 0 * a.sum()).backward()
            optimizer.step()
        model = nn.Sequential(nn.Linear(4, 1), nn.ReLU(), nn.Linear(1, 3))
        with dt.no_grad():
            model[0].bias.fill_(-100.0)
        train(model, dt.optim.SGD(model.parameters(), lr=0.01), 100)

    assert kinds(body) == set()


def test_channels_of_images():
    def body(bias):
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
        with dt.no_grad():
            model[0].bias.fill_(bias)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(60):
            optimizer.zero_grad()
            model(dt.randn(8, 1, 4, 4)).pow(2).mean().backward()
            optimizer.step()

    assert kinds(lambda: body(-100.0)) == {"dead-activations"}
    assert kinds(lambda: body(0.0)) == set()
