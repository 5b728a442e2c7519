"""Orders are orders, and choices follow their chances."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import keyed as k
from disttrain.errors import ConfigError

KEY, F32 = k.seed(4), np.dtype(np.float32)


def test_permutations():
    assert sorted(k.permutation(KEY, 100).tolist()) == list(range(100))
    x = dt.arange(24).reshape(4, 6)
    rows = k.permutation(KEY, x, 0)
    assert sorted(rows[:, 0].tolist()) == x[:, 0].tolist()
    assert (rows[:, 1:] - rows[:, :1] == x[:, 1:] - x[:, :1]).all()
    mixed = k.permutation(KEY, x, 1, independent=True)
    assert dt.sort(mixed, 1)[0].tolist() == x.tolist()


def test_choices():
    chances = dt.tensor([0.1, 0.0, 0.9])
    x = k.choice(KEY, 3, (1000,), True, chances)
    counts = dt.bincount(x, minlength=3)
    assert int(counts[1]) == 0 and abs(int(counts[0]) - 100) < 50
    assert sorted(k.choice(KEY, 5, (5,), False).tolist()) == list(range(5))
    columns = k.choice(KEY, dt.arange(12).reshape(3, 4), (2, 2), True, None, 1)
    assert columns.shape == (3, 2, 2)
    assert k.choice(KEY, 5, (0,)).shape == (0,)


def test_categorical():
    logits = dt.tensor([[0.0, 5.0], [5.0, 0.0]])
    assert k.categorical(KEY, logits, shape=(100, 2)).float().mean(0).round().tolist() == [1, 0]
    both = k.categorical(KEY, logits, shape=(2, 2), replace=False)
    assert both.sum(0).tolist() == [1, 1]


@pytest.mark.parametrize("wrong", [
    lambda: k.choice(KEY, 3, (4,), False), lambda: k.choice(KEY, 0, (1,)),
    lambda: k.choice(KEY, 3, (1,), True, dt.ones(2)), lambda: k.permutation(KEY, 4, 1),
    lambda: k.categorical(KEY, dt.ones(3), shape=(9,), replace=False),
])  # fmt: skip
def test_errors(wrong):
    with pytest.raises(ConfigError):
        wrong()
