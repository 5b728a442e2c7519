"""Schedules of several phases: rates epoch by epoch, worked out by hand."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import ConfigError
from disttrain.optim import lr_scheduler as schedules
from disttrain.optim.phases import ChainedScheduler, ReduceLROnPlateau, SequentialLR


def optimizer(lr=1.0):
    return dt.optim.SGD([dt.ones(1, requires_grad=True)], lr=lr)


def rate(own):
    return own.param_groups[0]["lr"]


def in_sequence(own):
    first = schedules.ConstantLR(own, factor=0.1, total_iters=9)
    return SequentialLR(own, [first, schedules.ExponentialLR(own, gamma=0.5)], milestones=[2])


def test_one_after_the_other_from_its_start():
    own = optimizer()
    schedule, seen = in_sequence(own), []
    for _ in range(5):
        seen.append(rate(own))
        own.step()
        schedule.step()
    assert seen == pytest.approx([0.1, 0.1, 1.0, 0.5, 0.25])


def test_a_sequence_goes_on_from_its_state():
    own, other = optimizer(), optimizer()
    one, two = in_sequence(own), in_sequence(other)
    for _ in range(3):
        own.step()
        one.step()
    two.load_state_dict(one.state_dict())
    other.param_groups[0]["lr"] = rate(own)
    for schedule, which in ((one, own), (two, other)):
        which.step()
        schedule.step()
    assert rate(own) == rate(other) and one.get_last_lr() == two.get_last_lr()


def test_side_by_side_the_factors_multiply():
    own = optimizer()
    chained = ChainedScheduler(
        [schedules.ExponentialLR(own, gamma=0.5), schedules.ExponentialLR(own, gamma=0.1)]
    )
    own.step()
    chained.step()
    assert rate(own) == pytest.approx(0.05) and chained.get_last_lr() == [rate(own)]


def plateau(own, **how):
    return ReduceLROnPlateau(own, factor=0.5, **how)


@pytest.mark.parametrize(
    ("how", "metrics", "want"),
    [
        ({"patience": 1}, [1, 1, 1], 0.5),  # the first is the best, two are no better
        ({"patience": 2}, [1, 1, 1], 1.0),
        ({"patience": 0}, [3, 2, 1], 1.0),
        ({"patience": 0, "mode": "max"}, [3, 2, 1], 0.25),
        ({"patience": 0, "cooldown": 2}, [1, 1, 1, 1], 0.5),
        ({"patience": 0, "min_lr": 0.4}, [1, 1, 1, 1], 0.4),
        ({"patience": 0, "threshold": 0.5}, [1, 0.6], 0.5),  # better by less than half
        ({"patience": 0, "threshold": 0.5, "threshold_mode": "abs"}, [9, 8.4], 1.0),
    ],
)
def test_on_a_plateau(how, metrics, want):
    own = optimizer()
    schedule = plateau(own, **how)
    for metric in metrics:
        schedule.step(metric)
    assert rate(own) == pytest.approx(want)


def test_what_makes_no_schedule_is_refused():
    own, other = optimizer(), optimizer()
    fine = schedules.ExponentialLR(own, gamma=0.5)
    for make, match in (
        (lambda: SequentialLR(own, [fine], [1]), "one more than"),
        (lambda: SequentialLR(own, [], []), "at least one"),
        (lambda: ChainedScheduler([]), "at least one"),
        (lambda: ChainedScheduler([fine, plateau(own)]), "does not support `ReduceLROnPlateau`"),
        (lambda: ChainedScheduler([fine], other), "same optimizer"),
        (lambda: ReduceLROnPlateau(own, factor=1.0), "Factor should be < 1.0"),
        (lambda: plateau(own, mode="best"), "mode best is unknown"),
        (lambda: plateau(own, threshold_mode="x"), "threshold mode x is unknown"),
        (lambda: plateau(own, min_lr=[0, 0]), "expected 1 min_lrs, got 2"),
    ):
        with pytest.raises(ConfigError, match=match):
            make()
