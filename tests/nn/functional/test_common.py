"""What losses and layers share."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import DisttrainError
from disttrain.nn.functional import common

LOSSES = dt.tensor([1.0, 2.0, 6.0])


def test_losses_are_reduced():
    assert common.reduce_loss(LOSSES, "none", "l1").tolist() == LOSSES.tolist()
    assert common.reduce_loss(LOSSES, "sum", "l1").item() == 9
    assert common.reduce_loss(LOSSES, "mean", "l1").item() == 3
    with pytest.raises(DisttrainError, match="l1: reduction='average'"):
        common.check_reduction("average", "l1")


@pytest.mark.parametrize(
    ("size_average", "reduce", "wanted"),
    [(None, False, "none"), (False, None, "sum"), (True, True, "mean"), (False, True, "sum")],
)
def test_old_words_for_reductions(size_average, reduce, wanted):
    with pytest.warns(UserWarning, match=f"use reduction='{wanted}'"):
        assert common.legacy_reduction(size_average, reduce, "mean") == wanted
    assert common.legacy_reduction(None, None, "sum") == "sum"


def test_one_number_stands_for_all_dimensions():
    assert common.per_dim(3, 2, "pool", "kernel_size") == (3, 3)
    assert common.per_dim((1, 2), 2, "pool", "kernel_size") == (1, 2)
    with pytest.raises(DisttrainError, match="pool: kernel_size"):
        common.per_dim((1, 2, 3), 2, "pool", "kernel_size")
