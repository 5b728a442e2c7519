"""Training and evaluation mode: which one a model is in when it is trained, and when it is not."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.data import DataLoader, TensorDataset
from disttrain.nn import functional as F
from support.sanitized import Net, batch, kinds, train


def made(model: nn.Module | None = None, steps: int = 3):
    """A model that has been trained, and its optimizer."""
    model = Net() if model is None else model
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, steps)
    return model, optimizer


def evaluate(model: nn.Module, times: int = 10) -> None:
    with dt.no_grad():
        for _ in range(times):
            model(batch()[0])


@pytest.mark.parametrize("back", [True, False])
def test_evaluation_mode_in_training(back):
    def body():
        model, optimizer = made()
        model.eval()
        evaluate(model)
        if back:
            model.train()
        train(model, optimizer)

    assert kinds(body) == (set() if back else {"eval-mode-in-training"})


def test_frozen_norms_and_models_without_modes():
    def body():
        model, optimizer = made()
        model.norm.eval()
        train(model, optimizer)
        model, optimizer = made(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)))
        model.eval()
        train(model, optimizer)
        evaluate(model.train())

    assert kinds(body) == set()


def test_adversarial_examples_made_in_evaluation_mode():
    def body():
        model, optimizer = made()
        for _ in range(4):
            x, y = batch()
            model.eval()
            x.requires_grad_()
            F.cross_entropy(model(x), y).backward()
            x = (x + 0.1 * x.grad.sign()).detach()
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    assert kinds(body) == set()


@pytest.mark.parametrize("mode", [True, False])
def test_training_mode_in_evaluation(mode):
    def body():
        model, _ = made()
        evaluate(model.train(mode))

    assert kinds(body) == ({"train-mode-in-evaluation"} if mode else set())


@pytest.mark.parametrize("mode", [True, False])
def test_a_small_loader_of_test_data(mode):
    def body():
        model, optimizer = made()
        data = TensorDataset(*batch(24))
        test = DataLoader(data, batch_size=8)
        for _ in range(3):
            for x, y in DataLoader(data, batch_size=8):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            model.train(mode)
            with dt.no_grad():
                for x, _y in test:
                    model(x)
            model.train()

    assert kinds(body) == ({"train-mode-in-evaluation"} if mode else set())


def test_statistics_of_norms_are_made_anew():
    def body():
        model, optimizer = made()
        loader = DataLoader(TensorDataset(*batch(96)), batch_size=8)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with dt.no_grad():
            for x, _y in loader:
                model(x)

    assert kinds(body) == set()


def test_monte_carlo_dropout_and_a_generator_without_gradients():
    def body():
        model, optimizer = made()
        model.eval()
        model.drop.train()
        evaluate(model)
        model.train()
        for _ in range(12):  # its results are what another one is trained on
            with dt.no_grad():
                model(batch()[0])
            train(model, optimizer, 1)

    assert kinds(body) == set()


class Dropping(nn.Module):
    """Calls the function."""

    def __init__(self, asks: bool) -> None:
        super().__init__()
        self.last, self.asks = nn.Linear(4, 3), asks

    def forward(self, x):
        x = F.dropout(x, 0.5, self.training) if self.asks else F.dropout(x, 0.5)
        return self.last(x)


@pytest.mark.parametrize("asks", [True, False])
def test_dropout_in_evaluation(asks):
    def body():
        model, _ = made(Dropping(asks))
        evaluate(model.eval())

    assert kinds(body) == (set() if asks else {"dropout-in-evaluation"})
