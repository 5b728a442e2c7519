"""What every scheduler says: steps forgotten, epochs given, rates asked for outside of a step."""

import numpy as np
import pytest

from disttrain import optim
from disttrain.core import wrap
from disttrain.optim import lr_scheduler as ls

BASE = 0.4


def optimizer(kind=optim.SGD, **args):
    params = [wrap(np.zeros(2, np.float32)).requires_grad_() for _ in range(2)]
    groups = [{"params": [params[0]]}, {"params": [params[1]], "lr": 2 * BASE}]
    return kind(groups, **{"lr": BASE, **args})


def test_a_rate_that_is_a_tensor_stays_the_same_tensor():
    lr = wrap(np.asarray(0.5, np.float32))
    opt = optim.SGD([wrap(np.zeros(2, np.float32)).requires_grad_()], lr=lr)
    schedule = ls.ExponentialLR(opt, 0.5)
    opt.step()
    schedule.step()
    assert opt.param_groups[0]["lr"] is lr and lr.item() == 0.25
    assert schedule.get_last_lr()[0] is not lr
    assert opt.param_groups[0]["initial_lr"].item() == schedule.base_lrs[0].item() == 0.5


def test_an_epoch_asks_for_the_closed_form_and_is_discouraged():
    opt = optimizer()
    schedule = ls.ExponentialLR(opt, 0.5)
    opt.step()
    with pytest.warns(UserWarning, match=r"epoch parameter in `scheduler\.step\(\)`"):
        schedule.step(4)
    assert opt.param_groups[0]["lr"] == BASE * 0.5**4 and schedule.last_epoch == 4


def test_get_lr_outside_of_a_step_is_discouraged():
    schedule = ls.StepLR(optimizer(), 2)
    with pytest.warns(UserWarning, match="get_last_lr"):
        schedule.get_lr()


def test_a_forgotten_optimizer_step_is_mentioned():
    schedule = ls.StepLR(optimizer(), 2)
    with pytest.warns(UserWarning, match=r"before `optimizer\.step"):
        schedule.step()
