"""Several pipelines."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.data.pipeline import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Pipeline
from disttrain.errors import ConfigError


def items(pipeline):
    return [np.asarray(x).tolist() for x in pipeline.as_numpy_iterator()]


def test_zip_takes_structures():
    made = Pipeline.zip({"a": Pipeline.range(3), "b": (Pipeline.range(5, 7),)})
    assert [(d["a"].item(), d["b"][0].item()) for d in made] == [(0, 5), (1, 6)]
    assert len(made) == 2
    with pytest.raises(TypeError, match="pipelines are needed"):
        Pipeline.zip(Pipeline.range(3), [1, 2, 3])


def test_repeat():
    assert items(Pipeline.range(2).repeat(2)) == [0, 1, 0, 1]
    assert items(Pipeline.range(2).repeat().take(5)) == [0, 1, 0, 1, 0]
    assert Pipeline.range(2).repeat().cardinality() == INFINITE_CARDINALITY
    assert items(Pipeline.range(0).repeat()) == []  # not without end
    assert items(Pipeline.range(3).repeat(0)) == []


def test_concatenate():
    assert items(Pipeline.range(2).concatenate(Pipeline.range(5, 7))) == [0, 1, 5, 6]
    with pytest.raises(ConfigError, match="must be equal"):
        _ = Pipeline.range(2).concatenate(Pipeline.from_tensors((1, 2))).element_spec


@pytest.mark.parametrize("calls", [None, 2])
def test_interleave(calls):
    made = Pipeline.range(1, 4).interleave(
        lambda x: Pipeline.from_tensors(x).repeat(3), 2, 2, num_parallel_calls=calls
    )
    assert items(made) == [1, 1, 2, 2, 1, 2, 3, 3, 3]
    assert made.cardinality() == UNKNOWN_CARDINALITY
    assert items(Pipeline.range(3).flat_map(Pipeline.range)) == [0, 0, 1]
    with pytest.raises(TypeError, match="a pipeline is needed"):
        items(Pipeline.range(3).flat_map(lambda x: x))


def test_choices():
    parts = [Pipeline.range(2), Pipeline.range(10, 15)]
    choice = Pipeline.from_tensor_slices([0, 1, 0, 0, 1, 1])
    assert items(Pipeline.choose_from_datasets(parts, choice)) == [0, 10, 1]
    more = Pipeline.choose_from_datasets(parts, choice, stop_on_empty_dataset=False)
    assert items(more) == [0, 10, 1, 11, 12]
    with pytest.raises(ConfigError, match="2 chosen"):
        items(Pipeline.choose_from_datasets(parts, Pipeline.from_tensors(2)))


def test_samples():
    parts = [Pipeline.from_tensors(i).repeat() for i in range(3)]
    made = Pipeline.sample_from_datasets(parts, [0.7, 0.0, 0.3], seed=5).take(400)
    found = np.bincount(items(made), minlength=3)
    assert found[1] == 0 and 230 < found[0] < 330
    first = Pipeline.sample_from_datasets(parts, seed=5, rerandomize_each_iteration=False).take(20)
    assert items(first) == items(first)
    ended = Pipeline.sample_from_datasets([Pipeline.range(3), Pipeline.range(3)], seed=1)
    assert sorted(items(ended)) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ConfigError, match="weight"):
        Pipeline.sample_from_datasets(parts, [1.0])
