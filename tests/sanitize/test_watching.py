"""Functions that stand in for this package's own are called as these are."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn import functional as F
from support.sanitized import Net, batch, kinds


def test_arguments_by_name():
    def body():
        model = Net(norm=False)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        scaler = dt.amp.GradScaler("cpu", init_scale=4.0)
        for _ in range(3):
            x, y = batch()
            loss = F.cross_entropy(input=model(x=x), target=y)
            scaler.scale(outputs=loss).backward()
            scaler.unscale_(optimizer=optimizer)
            nn.utils.clip_grad_norm_(parameters=model.parameters(), max_norm=1.0)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            nn.utils.clip_grad_value_(model.parameters(), clip_value=1.0)
            scaler.step(optimizer=optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            model.register_parameter(name="more", param=None)
        nn.MSELoss()(input=dt.ones(2), target=dt.zeros(2))

    assert kinds(body) == set()


def test_missing_arguments_are_the_functions_own_errors():
    with dt.sanitize(quiet=True) as watch:
        for call in (F.mse_loss, nn.utils.clip_grad_norm_, dt.amp.GradScaler("cpu").scale):
            with pytest.raises(TypeError, match="missing"):
                call()
    assert watch.failed == []


def test_optimizers_of_the_program_are_seen():
    class Own(dt.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure=None):
            with dt.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p.sub_(p.grad, alpha=0.01)

    class Later(Own):
        def step(self, closure=None):
            return super().step(closure)

    def body(kind):
        model = nn.Linear(4, 3)
        optimizer = kind(model.parameters())
        for _ in range(4):
            x, y = batch()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    assert kinds(lambda: body(Own)) == {"gradients-never-zeroed"}
    assert kinds(lambda: body(Later)) == {"gradients-never-zeroed"}

    def defined_inside():
        class Newest(Own):
            def step(self, closure=None):
                return super().step(closure)

        body(Newest)

    assert kinds(defined_inside) == {"gradients-never-zeroed"}


def test_generators_of_parameters_are_given_on():
    layer = nn.Linear(2, 1)
    layer(dt.full((1, 2), 100.0)).sum().backward()
    with dt.sanitize(quiet=True):
        norm = nn.utils.clip_grad_norm_((p for p in layer.parameters()), 1.0)
    assert float(norm) > 100 and float(layer.weight.grad.norm()) < 1.01
