"""Updates of optimizers on a device: those that are alike are one launch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile.replays.device_updates import raw_of, run_together

pytestmark = pytest.mark.usefixtures("double")


class Rule(SimpleNamespace):
    """A primitive of updates that notes what it is given."""

    def __init__(self):
        super().__init__(sets=[])
        self.together = lambda params: self.sets.append


def steps_of(rule, *params):
    return [SimpleNamespace(prim=rule, params=p, given=[i]) for i, p in enumerate(params)]


def test_those_that_are_alike_go_together():
    values = [dt.full((2,), float(i), device="cuda").array for i in range(4)]
    rule = Rule()
    steps = steps_of(rule, {"lr": 1}, {"lr": 1}, {"lr": 2}, {"lr": 1})
    assert [run_together(steps, at, values) for at in (0, 2, 3)] == [2, 1, 1]
    found = [[one for (one,) in sets] for sets in rule.sets]
    raws = [v.data for v in values]
    assert [list(map(id, f)) for f in found] == [
        list(map(id, f)) for f in (raws[:2], raws[2:3], raws[3:])
    ]


def test_others_are_left():
    rule, plain = Rule(), SimpleNamespace(prim=SimpleNamespace(together=None), given=[0], params={})
    there = [dt.ones(2, device="cuda:1").array, dt.ones(2, device="cuda").array, np.ones(2)]
    steps = steps_of(rule, {}, {}, {})
    assert [run_together(steps, at, there) for at in (0, 1, 2)] == [1, 1, 0]
    assert run_together([plain], 0, there) == 0
    assert raw_of(there[2]) is there[2]
