"""The first nan or inf: in which operation of forward, or of backward, and in which module."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn import functional as F
from support.sanitized import Net, batch, findings, kinds, train


class Broken(nn.Module):
    """Its ``inner`` does ``what``."""

    def __init__(self, what):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 4), Inner(what), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.inner(self.first(x)))


class Inner(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x):
        return self.what(x)


def found_in(what, steps: int = 4, **options):
    def body():
        model = Broken(what)
        train(model, dt.optim.SGD(model.parameters(), lr=0.01), steps)

    return findings(body, **options)


@pytest.mark.parametrize(
    "what, name",
    [
        (lambda x: x.log(), "log"),
        (lambda x: (x - 3).sqrt() + 1, "sqrt"),
        (lambda x: x / (x - x), "div"),
        (lambda x: dt.exp(x * 1000) - dt.exp(x * 1000), "exp"),
        (lambda x: x.masked_fill(x < 99, -float("inf")).softmax(1), "softmax"),
    ],
)
def test_forward(what, name):
    (found,) = found_in(what)
    assert found.kind == "non-finite-forward"
    assert f"{name} in Broken.inner makes" in found.message
    assert found.place.file == __file__


@pytest.mark.parametrize(
    "what, name",
    [
        (lambda x: dt.where(x > 9, (x * 0).sqrt(), x), "sqrt"),
        (lambda x: (x - x).norm(dim=1, keepdim=True) + x, "norm"),
        (lambda x: dt.where(x > 9, x.pow(0.5), x), "pow"),
    ],
)
def test_backward(what, name):
    found = found_in(what)
    assert [f.kind for f in found] == ["non-finite-backward"] * len(found)
    assert found or name == "norm"  # its gradient at zero may be defined
    assert all(f"{name} in Broken.inner" in f.message for f in found)


def test_masks_of_minus_infinity_are_no_finding():
    assert found_in(lambda x: x.masked_fill(x < x.mean(1, keepdim=True), -float("inf"))
                    .softmax(1) + x) == []  # fmt: skip


def test_the_line_of_the_operation_comes_with_the_next_step(capfd):
    def body():
        model = Broken(lambda x: x.log())
        train(model, dt.optim.SGD(model.parameters(), lr=0.01), 4)

    with dt.sanitize():
        body()
    said = capfd.readouterr().err
    line = body.__code__.co_firstlineno + 1
    assert f"log, ran at {__file__}:{line}" in said


def test_data_and_parameters_that_are_not_finite():
    def data():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        x, y = batch()
        x[0, 0] = float("nan")
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    (found,) = findings(data)
    assert "is given nan by the program" in found.message

    def parameter():
        model = Net()
        with dt.no_grad():
            model.first.weight[0, 0] = float("nan")
        train(model, dt.optim.SGD(model.parameters(), lr=0.01))

    (found,) = findings(parameter)
    assert "Net.first.weight is nan already" in found.message


def test_steps_that_are_skipped_are_left_alone():
    def body():
        model = Broken(lambda x: x.log())
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            x, y = batch()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if np.isfinite(loss.item()):
                optimizer.step()

    assert kinds(body) == set()


def test_gradients_that_a_hook_mends():
    def body():
        model = Broken(lambda x: dt.where(x > 9, (x * 0).sqrt(), x))
        for p in model.parameters():
            p.register_hook(lambda g: g.nan_to_num())
        train(model, dt.optim.SGD(model.parameters(), lr=0.01))

    assert kinds(body) == set()


def test_a_loss_scale_that_is_too_large_at_first():
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        scaler = dt.amp.GradScaler("cpu", init_scale=2.0**127)
        for _ in range(6):
            x, y = batch()
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()

    assert kinds(body) == set()


def test_without_an_optimizer():
    def body():
        w = dt.full((3,), -1.0, requires_grad=True)
        for _ in range(3):
            w.log().sum().backward()
            with dt.no_grad():
                w -= 0.1 * w.grad
            w.grad = None

    assert kinds(body) == {"non-finite-forward"}


def test_a_compiled_step():
    model = Net(norm=False)
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)

    @dt.compile
    def step(x, y, scale):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) * scale, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def body(scale):
        for _ in range(6):
            step(*batch(), dt.tensor(scale))

    assert kinds(lambda: body(1.0)) == set()
    assert kinds(lambda: body(float("nan"))) == {"non-finite-forward"}
