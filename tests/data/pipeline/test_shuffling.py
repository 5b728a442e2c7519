"""Orders: of a seed, of each pass, of TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.data.pipeline import Pipeline
from disttrain.data.pipeline.shuffling import Words
from disttrain.errors import ConfigError


def items(pipeline):
    return [np.asarray(x).tolist() for x in pipeline.as_numpy_iterator()]


def test_orders_are_tensorflows():
    """Recorded from TensorFlow 2.21: ``Dataset.range(10).shuffle(5, seed=3)``, twice; and
    others."""
    made = Pipeline.range(10).shuffle(5, seed=3)
    assert items(made) == [4, 1, 0, 2, 7, 8, 6, 3, 5, 9]
    assert items(made) == [3, 4, 2, 6, 5, 9, 0, 8, 1, 7]
    fixed = Pipeline.range(6).shuffle(4, seed=3, reshuffle_each_iteration=False).repeat(2)
    assert items(fixed) == [3, 4, 2, 5, 0, 1, 3, 4, 2, 5, 0, 1]
    three = Pipeline.range(6).shuffle(4, seed=3).repeat(3)
    assert items(three) == [0, 3, 2, 1, 4, 5, 0, 4, 1, 5, 3, 2, 0, 1, 5, 3, 2, 4]
    assert items(Pipeline.random(seed=4).take(3)) == [3128586565, 2023892699, 452966358]


def test_all_come_once_and_no_further_than_the_buffer():
    order = items(Pipeline.range(100).shuffle(10, seed=1))
    assert sorted(order) == list(range(100))
    assert all(x <= place + 9 for place, x in enumerate(order))


def test_a_huge_buffer_takes_no_more_than_there_is():
    assert sorted(items(Pipeline.range(5).shuffle(1 << 60, seed=1))) == list(range(5))
    assert sorted(items(Pipeline.range(5).shuffle(None))) == list(range(5))
    with pytest.raises(ConfigError, match="buffer_size=0"):
        Pipeline.range(5).shuffle(0)


def test_the_rank_seeds_what_has_no_seed():
    dt.manual_seed(7)
    first = items(Pipeline.range(20).shuffle(20))
    dt.manual_seed(7)
    assert items(Pipeline.range(20).shuffle(20)) == first
    assert items(Pipeline.range(20).shuffle(20)) != first


def test_words_can_be_taken_from_anywhere():
    words = Words((1, 2))
    found = [words.take() for _ in range(600)]
    for at in (0, 1, 255, 256, 599):
        assert Words((1, 2), at).take() == found[at]


def test_resampling():
    labels = Pipeline.from_tensor_slices(np.arange(3000) % 10 // 9)  # a tenth are 1
    made = labels.rejection_resample(lambda x: x, [0.5, 0.5], [0.9, 0.1], seed=3)
    kinds = [int(kind) for kind, _ in made]
    assert 500 < len(kinds) < 700 and 0.4 < np.mean(kinds) < 0.6
    counted = labels.rejection_resample(lambda x: x, [0.5, 0.5], seed=3)
    assert 0.35 < np.mean([int(kind) for kind, _ in counted]) < 0.6
