"""Factors of gradients: by ranks, by those with input, by weights."""

from __future__ import annotations

import types

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.backends.device.memory import HOST
from disttrain.distributed.ddp.reducer.scaling import Scaling
from disttrain.distributed.ddp.reducer.side_data import JOINED, WEIGHTED, Row
from disttrain.errors import AutogradError

pytestmark = pytest.mark.simulated

F4 = np.dtype("f4")


class Messages:
    """Says which error it was."""

    def weights_missing(self, weighted):
        return AutogradError(f"missing {weighted}")

    def weights_mixed(self):
        return AutogradError("mixed")


@pytest.fixture
def scaling():
    params = [nn.Parameter(dt.ones(2)) for _ in range(2)]
    made = Scaling(params, types.SimpleNamespace(size=4), HOST, Messages())
    made.scales_of(F4)
    made.rescale()
    return made


def factors(scaling):
    scales = scaling.scales_of(F4)
    return scales.local.item(), scales.common.item(), scales.fresh.item()


def test_without_weights_the_mean_is_over_ranks(scaling):
    assert factors(scaling) == (1.0, 0.25, 0.25)
    scaling.move(types.SimpleNamespace(size=3))
    assert factors(scaling) == (1.0, pytest.approx(1 / 3), pytest.approx(1 / 3))
    scaling.leave_to_hook()
    assert factors(scaling) == (1.0, 1.0, 1.0)


def test_in_a_join_block_those_with_input_may_count_alone(scaling):
    scaling.count_active([1, 0, 3, 0])
    assert factors(scaling)[1] == 0.25
    scaling.divide_by_initial = False
    scaling.count_active([1, 0, 3, 0])
    assert factors(scaling)[1] == 0.5 and scaling.divisor == 2


def test_weights_multiply_and_the_sum_divides_later(scaling):
    scaling.set_weight((6.0, 3.0))
    assert factors(scaling) == (3.0, 1.0, 3.0) and not scaling.is_void
    scaling.rescale(12.0)  # of all ranks, where it is known before
    assert factors(scaling)[1] == pytest.approx(1 / 12)
    scaling.rescale(0.0)
    assert factors(scaling)[1] == 0.0
    scaling.by_hook = True
    scaling.rescale(12.0)
    assert factors(scaling)[1] == pytest.approx(4 / 12)  # a hook divides by ranks
    scaling.set_weight((0.0, 1.0))
    assert scaling.is_void and scaling.asks_weights
    scaling.set_weight(None)
    scaling.by_hook = False
    assert not scaling.is_void and not scaling.asks_weights


def test_sums_are_divided_by_the_weight_of_all_that_have_input(scaling):
    flat = np.array([6.0, 3.0], "f4")
    rows = [Row(WEIGHTED, weight=1.0), Row(WEIGHTED, weight=2.0), Row(JOINED, weight=0.0)]
    scaling.divide(rows, [flat])
    assert flat.tolist() == [2.0, 1.0]
    scaling.divide([Row(WEIGHTED, weight=0.0)], [flat])  # no samples at all: nothing is divided
    assert flat.tolist() == [2.0, 1.0]
    scaling.accumulated.add(1)
    with pytest.raises(AutogradError, match=r"missing \[True, False\]"):
        scaling.divide([Row(WEIGHTED), Row(0)], [flat])
    assert not scaling.accumulated


def test_a_mean_of_an_earlier_step_makes_room_and_is_kept(scaling):
    leaf = scaling.params[0]
    assert scaling.carry(0, leaf) is None
    leaf.grad = dt.full((2,), 5.0)
    held = leaf.grad
    assert scaling.carry(0, leaf) is held and held.tolist() == [0.0, 0.0]
    assert scaling.carried[0].tolist() == [5.0, 5.0]
    held.fill_(1.0)
    assert scaling.carry(0, leaf) is held and held.tolist() == [1.0, 1.0]  # once for each step
    other = scaling.params[1]
    other.grad = dt.ones(1).expand(2)  # nobody may write there
    scaling.memory = types.SimpleNamespace(raw=lambda a: a, writeable=lambda a: False)
    assert scaling.carry(1, other) is None and other.grad is None
    scaling.end()
    assert not scaling.carried and scaling.total is None


def test_what_was_accumulated_in_this_step_is_no_mean(scaling):
    leaf = scaling.params[0]
    leaf.grad = dt.full((2,), 5.0)
    scaling.accumulated.add(0)
    assert scaling.carry(0, leaf).tolist() == [5.0, 5.0] and not scaling.carried


def counted(scaling, syncing=False):
    """What one backward counts."""
    p = dt.ones(1, requires_grad=True)
    p.register_hook(lambda g: scaling.count_weight(syncing))
    (p * 2).sum().backward()


def test_each_backward_counts_once_and_all_have_a_weight_or_none(scaling):
    counted(scaling)
    assert scaling.total is None
    scaling.weight = (2.0, 2.0)
    for total in (2.0, 4.0):
        counted(scaling)
        assert scaling.total == total
    scaling.params[0].grad = dt.ones(2)
    scaling.accumulated.add(0)
    scaling.weight = None
    with pytest.raises(AutogradError, match="mixed"):
        counted(scaling)
    assert scaling.total is None


def test_what_the_program_has_dropped_does_not_count(scaling):
    scaling.weight = (2.0, 2.0)
    counted(scaling)
    scaling.accumulated.add(0)  # whose gradient is None
    counted(scaling)
    assert scaling.total == 2.0
