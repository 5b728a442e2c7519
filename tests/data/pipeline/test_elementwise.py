"""Stages over single elements."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.data.pipeline import UNKNOWN_CARDINALITY, Pipeline
from disttrain.errors import ConfigError, ShapeError


def items(pipeline):
    return [np.asarray(x).tolist() for x in pipeline.as_numpy_iterator()]


def test_map_unpacks_tuples_and_not_dicts():
    pairs = Pipeline.from_tensor_slices((np.arange(3), np.arange(3) * 2))
    assert items(pairs.map(lambda x, y: x + y)) == [0, 3, 6]
    named = Pipeline.from_tensor_slices({"x": np.arange(3)})
    assert items(named.map(lambda d: d["x"] + 1)) == [1, 2, 3]


def test_an_error_is_that_of_its_element():
    def fn(x):
        if x.item() == 1:
            raise ValueError("one")
        return x

    it = iter(Pipeline.range(3).map(fn))
    assert next(it).item() == 0
    with pytest.raises(ValueError, match="one") as caught:
        next(it)
    assert caught.traceback[-1].name == "fn"
    assert next(it).item() == 2
    with pytest.warns(UserWarning, match="ValueError: one"):
        assert items(Pipeline.range(3).map(fn).ignore_errors(log_warning=True)) == [0, 2]


def test_stop_iteration_of_a_function_does_not_end_it_silently():
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        items(Pipeline.range(3).map(lambda x: next(iter(()))))


def test_a_predicate_returns_one_truth_value():
    assert items(Pipeline.range(6).filter(lambda x: x % 2 == 0)) == [0, 2, 4]
    assert items(Pipeline.range(6).take_while(lambda x: x < 2)) == [0, 1]
    assert items(Pipeline.range(6).filter(lambda x: bool(x > 3))) == [4, 5]
    with pytest.raises(ConfigError, match="Invalid `predicate`"):
        items(Pipeline.range(6).filter(lambda x: x))
    assert Pipeline.range(6).filter(lambda x: x > 2).cardinality() == UNKNOWN_CARDINALITY


def test_parts():
    p = Pipeline.range(7)
    assert items(p.take(2)) == [0, 1]
    assert items(p.take(-1)) == items(p.skip(0)) == items(p)
    assert items(p.skip(5)) == [5, 6]
    assert items(p.skip(-1)) == []
    assert items(p.shard(3, 1)) == [1, 4]
    assert [len(p.shard(3, i)) for i in range(3)] == [3, 2, 2]
    with pytest.raises(ConfigError, match="index 3 of 3"):
        p.shard(3, 3)
    with pytest.raises(ConfigError, match="whole number"):
        p.take("two")


def test_take_reads_no_further():
    read = []
    source = Pipeline.from_generator(lambda: (read.append(i) or i for i in range(10)))
    items(source.take(3))
    assert read == [0, 1, 2]


def test_scan_and_enumerate():
    assert items(Pipeline.range(4).scan(10, lambda s, x: (s + x, s))) == [10, 10, 11, 13]
    assert [(i.item(), x.item()) for i, x in Pipeline.range(5, 7).enumerate(3)] == [(3, 5), (4, 6)]
    with pytest.raises(ConfigError, match="pair"):
        items(Pipeline.range(4).scan(0, lambda s, x: s))
    with pytest.raises(ConfigError, match="must stay"):
        items(Pipeline.range(4).scan(0, lambda s, x: ((s, s), x)))


def test_a_carried_state_may_be_written_to():
    made = Pipeline.range(3).scan(np.zeros(1, np.int64), lambda s, x: (s.add_(x), s.clone()))
    assert items(made) == items(made) == [[0], [1], [3]]


def test_unbatch_and_unique():
    assert items(Pipeline.range(5).batch(2).unbatch()) == [0, 1, 2, 3, 4]
    assert items(Pipeline.from_tensor_slices(["a", "b", "a"]).unique()) == [b"a", b"b"]
    with pytest.raises(ShapeError, match="first size"):
        items(Pipeline.range(3).unbatch())


def test_assert_cardinality():
    odd = Pipeline.range(5).filter(lambda x: x % 2 == 1)
    assert len(odd.assert_cardinality(2)) == 2
    assert items(odd.assert_cardinality(2)) == [1, 3]
    for wrong in (1, 3, -1):
        with pytest.raises(ConfigError, match="said to come"):
            items(odd.assert_cardinality(wrong))
