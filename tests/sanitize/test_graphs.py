"""Graphs that grow or live too long, captures that do not last, and moves that repeat."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn import functional as F
from disttrain.sanitize.graphs import Moves
from support.sanitized import Net, batch, findings, kinds


@pytest.mark.parametrize("detach", [True, False])
def test_a_state_that_is_carried_along(detach):
    def body():
        cell, head = nn.RNNCell(4, 4), nn.Linear(4, 3)
        optimizer = dt.optim.SGD([*cell.parameters(), *head.parameters()], lr=1e-4)
        h = dt.zeros(8, 4)
        for _ in range(16):
            x, y = batch()
            h = cell(x, h.detach() if detach else h)
            optimizer.zero_grad()
            F.cross_entropy(head(h), y).backward(retain_graph=not detach)
            with dt.no_grad():
                pass
            if detach:
                optimizer.step()
            else:  # (a step would change what the old graph has saved)
                optimizer.param_groups[0]["lr"] = 1e-4
                for p in optimizer.param_groups[0]["params"]:
                    p.grad = None
                optimizer.step()

    assert ("growing-graph" in kinds(body)) is not detach


def test_a_running_loss_that_is_walked():
    def body():
        model = nn.Linear(4, 1)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        total = dt.zeros(())
        for _ in range(16):
            total = total + model(dt.ones(1, 4)).sum()
            optimizer.zero_grad()
            total.backward(retain_graph=True)
            optimizer.step()

    assert kinds(body) == {"growing-graph"}


def test_sequences_that_get_longer():
    def body():
        cell = nn.RNNCell(4, 4)
        optimizer = dt.optim.SGD(cell.parameters(), lr=0.01)
        for n in range(1, 20):
            h = dt.zeros(2, 4)
            for _ in range(n):
                h = cell(dt.randn(2, 4), h)
            optimizer.zero_grad()
            h.sum().backward()
            optimizer.step()

    assert kinds(body) == set()


@pytest.mark.parametrize("how, found", [("loss", True), ("item", False), ("detach", False)])
def test_a_list_of_losses(how, found):
    losses = []

    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(110):
            x, y = batch()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append({"loss": loss, "item": loss.item(), "detach": loss.detach()}[how])

    assert kinds(body) == ({"graph-kept-alive"} if found else set())


@pytest.mark.parametrize("grad", [True, False])
def test_losses_of_evaluation(grad):
    losses = []

    def body():
        model = nn.Linear(4, 3)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            for _ in range(32):
                x, y = batch()
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            with dt.set_grad_enabled(grad):
                losses.extend(F.cross_entropy(model(x), y) for x, y in [batch()] * 40)

    assert kinds(body) == ({"graph-kept-alive"} if grad else set())


def test_log_probabilities_of_episodes():
    def body():
        policy = nn.Linear(4, 2)
        optimizer = dt.optim.SGD(policy.parameters(), lr=0.01)
        for _ in range(70):
            saved = [policy(dt.randn(4)).log_softmax(0)[0] for _ in range(60)]
            optimizer.zero_grad()
            dt.stack(saved).sum().neg().backward()
            optimizer.step()

    assert kinds(body) == set()


@pytest.mark.filterwarnings("ignore:compile")
@pytest.mark.parametrize("changes", [True, False])
def test_captures_that_do_not_last(changes):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.factor = nn.Linear(4, 3), 1.0

        def forward(self, x):
            return self.layer(x) * self.factor

    model = Scaled()
    compiled = dt.compile(model)

    def body():
        for i in range(16):
            model.factor = float(i) if changes else 1.0
            compiled(dt.ones(2, 4))

    assert kinds(body) == ({"retrace-storm"} if changes else set())


def test_moves_of_the_same_array():
    class Session:
        steps = 1
        told: list = []

        def add(self, *what):
            self.told.append(what[0])

    session = Session()
    moves = Moves(session)
    same, other = np.ones(3), np.ones(3)
    for session.steps in range(1, 30):
        other += 1.0  # a parameter that is kept on the host
        moves.moved(other, "cuda")
        moves.moved(np.ones(3), "cuda")
    assert session.told == []
    for session.steps in range(30, 60):
        moves.moved(same, "cuda")
    assert session.told == ["tensor-moved-in-loop"]


def test_findings_name_the_line():
    def body():
        model = nn.Linear(4, 1)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            model(dt.ones(1, 4)).sum().backward()
            optimizer.step()

    (found,) = findings(body)
    assert (found.place.file, found.place.line) == (__file__, body.__code__.co_firstlineno + 4)
