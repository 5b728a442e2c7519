"""Batches, padding, windows, groups."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

import disttrain as dt
from disttrain.data.pipeline import Pipeline
from disttrain.data.pipeline.batching import share
from disttrain.errors import ConfigError, ShapeError
from disttrain.partial_shape import PartialShape


def items(pipeline):
    return [np.asarray(x).tolist() for x in pipeline.as_numpy_iterator()]


def rows_of(lengths):
    return Pipeline.from_tensor_slices(lengths).map(lambda n: dt.arange(n.item()) + 1)


def test_batches():
    assert items(Pipeline.range(5).batch(2)) == [[0, 1], [2, 3], [4]]
    assert items(Pipeline.range(5).batch(2, drop_remainder=True)) == [[0, 1], [2, 3]]
    assert [len(Pipeline.range(5).batch(2, drop_remainder=d)) for d in (True, False)] == [2, 3]
    with pytest.raises(ShapeError, match="element 1 has shape"):
        items(rows_of([2, 3]).batch(2))
    with pytest.raises(ConfigError, match="batch_size=0"):
        Pipeline.range(5).batch(0)
    with pytest.raises(ConfigError, match="pipelines themselves"):
        items(Pipeline.range(5).window(2).batch(2))


def test_padded_batches():
    assert items(rows_of([1, 3]).padded_batch(2)) == [[[1, 0, 0], [1, 2, 3]]]
    made = rows_of([1, 3]).padded_batch(2, padded_shapes=[4], padding_values=-1)
    assert items(made) == [[[1, -1, -1, -1], [1, 2, 3, -1]]]
    assert items(rows_of([1, 3]).padded_batch(2, [None])) == [[[1, 0, 0], [1, 2, 3]]]
    with pytest.raises(ShapeError, match="2 at most"):
        items(rows_of([3]).padded_batch(1, [2]))
    texts = Pipeline.from_tensor_slices(["a b", "c"]).map(lambda t: t.decode().split())
    assert items(texts.padded_batch(2)) == [[[b"a", b"b"], [b"c", b""]]]
    pairs = Pipeline.zip(rows_of([1, 2]), Pipeline.range(2)).padded_batch(2, ([None], []), (7, 0))
    ((a, b),) = list(pairs)
    assert (a.tolist(), b.tolist()) == ([[1, 7], [1, 2]], [0, 1])
    with pytest.raises(ConfigError, match="no ragged tensors"):
        rows_of([1]).ragged_batch(2)


def test_rebatch():
    assert items(Pipeline.range(7).batch(3).rebatch(2)) == [[0, 1], [2, 3], [4, 5], [6]]
    assert items(Pipeline.range(7).batch(2).rebatch([3, 1])) == [[0, 1, 2], [3], [4, 5, 6]]


def test_windows_of_tuples_are_tuples_of_pipelines():
    pairs = Pipeline.zip(Pipeline.range(5), Pipeline.range(10, 15))
    found = [(list(map(int, a)), list(map(int, b))) for a, b in pairs.window(2, shift=2)]
    assert found == [([0, 1], [10, 11]), ([2, 3], [12, 13]), ([4], [14])]


def test_groups():
    made = Pipeline.range(7).group_by_window(lambda x: x % 2, lambda k, g: g.batch(2), 2)
    assert items(made) == [[0, 2], [1, 3], [4, 6], [5]]
    with pytest.raises(TypeError, match="a pipeline is needed"):
        items(Pipeline.range(3).group_by_window(lambda x: 0, lambda k, g: k, 2))
    with pytest.raises(ConfigError, match="one of window_size"):
        Pipeline.range(3).group_by_window(lambda x: 0, lambda k, g: g)


def test_buckets():
    made = rows_of([1, 5, 2, 6, 9]).bucket_by_sequence_length(len, [3, 7], [2, 2, 1])
    assert [np.shape(b) for b in items(made)] == [(2, 2), (2, 6), (1, 9)]
    bound = rows_of([1, 2]).bucket_by_sequence_length(len, [4], [2, 1], pad_to_bucket_boundary=True)
    assert items(bound) == [[[1, 0, 0], [1, 2, 0]]]
    with pytest.raises(ConfigError, match="batch sizes"):
        rows_of([1]).bucket_by_sequence_length(len, [3], [2])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_together_have_each_batch(size):
    whole = Pipeline.range(13).batch(4)
    parts = [items(whole.distribute(size, rank)) for rank in range(size)]
    joined = [list(chain(*p)) for p in zip(*parts, strict=True)]
    assert joined == items(whole)
    assert [len(share(3, 2, i)) for i in range(2)] == [2, 1]


def test_padded_shapes_may_be_partial_shapes_and_tensors():
    rows = Pipeline.from_tensors([1, 2, 3])
    for shape in (PartialShape([4]), dt.tensor([4]), [4], (4,)):
        assert next(iter(rows.padded_batch(1, shape))).tolist() == [[1, 2, 3, 0]]
    for free in (PartialShape(None), PartialShape([None]), dt.tensor([-1])):
        assert next(iter(rows.padded_batch(1, free))).shape == (1, 3)
