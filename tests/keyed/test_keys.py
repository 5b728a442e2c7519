"""Keys are data: they are split, folded, indexed, mapped and captured as tensors are."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain import keyed
from disttrain.errors import ConfigError

F32 = np.dtype(np.float32)


def test_words_of_seeds():
    assert keyed.data(keyed.seed(5)).tolist() == [0, 5]
    assert keyed.data(keyed.seed(-1)).tolist() == [0xFFFFFFFF, 0xFFFFFFFF]
    assert keyed.data(keyed.seed(dt.tensor(-1, dtype=dt.int32))).tolist() == [0, 0xFFFFFFFF]
    assert keyed.data(keyed.seed(dt.tensor([1 << 40]))).tolist() == [[256, 0]]


def test_arrays_of_keys():
    keys = keyed.split(keyed.seed(0), (2, 3))
    assert keys.dtype is dt.keyed.seed(0).dtype and keys.shape == (2, 3)
    again = keyed.of_data(keyed.data(keys))
    drawn = keyed.bits(again, (4,), np.dtype(np.uint32))
    assert drawn.shape == (2, 3, 4)
    one = keyed.bits(keys[1, 2], (4,), np.dtype(np.uint32))
    assert drawn[1, 2].tolist() == one.tolist()
    both = dt.stack([keys[0], keys[1]])
    assert keyed.data(both).tolist() == keyed.data(keys).tolist()
    assert "key" in repr(keys)


def test_fold_in():
    key, numbers = keyed.seed(1), dt.arange(3)
    many = keyed.data(keyed.fold_in(key, numbers)).tolist()
    assert many == [keyed.data(keyed.fold_in(key, i)).tolist() for i in range(3)]
    assert len({tuple(k) for k in many}) == 3


def test_captured_and_mapped():
    def draw(key):
        return keyed.normal(keyed.split(key)[1], (3,), F32) * 2

    compiled = dt.compile(draw)
    for i in range(3):
        assert compiled(keyed.seed(i)).tolist() == draw(keyed.seed(i)).tolist()
    keys = keyed.split(keyed.seed(0), 4)
    mapped = dt.func.vmap(draw)(keys)
    assert mapped.tolist() == [draw(keys[i]).tolist() for i in range(4)]


def test_the_way_is_a_rank_s():
    with keyed.as_partitionable(False):
        old = keyed.data(keyed.split(keyed.seed(0))).tolist()
    assert keyed.partitionable()
    assert old != keyed.data(keyed.split(keyed.seed(0))).tolist()


def test_threads_draw_the_same():
    found = []
    key = keyed.seed(9)
    jobs = [
        threading.Thread(target=lambda: found.append(keyed.normal(key, (1000,), F32).numpy()))
        for _ in range(4)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert len({x.tobytes() for x in found}) == 1


@pytest.mark.parametrize("wrong", [
    lambda: keyed.split(dt.ones(2)), lambda: keyed.of_data(dt.ones(2)),
    lambda: keyed.seed(dt.ones(2)), lambda: keyed.normal(keyed.seed(0), (-1,), F32),
    lambda: keyed.gumbel(keyed.seed(0), (1,), F32, "medium"),
])  # fmt: skip
def test_errors(wrong):
    with pytest.raises(ConfigError):
        wrong()


def test_shapes_of_parameters():
    assert keyed.common_shape("beta", None, [((3, 1), 0), ((4,), 0)]) == (3, 4)
    assert keyed.common_shape("dirichlet", (2,), [((2, 5), 1)]) == (2,)
    for shape, parameters in (((2,), [((3,), 0)]), (None, [((), 1)]), ((1,), [((2,), 0)])):
        with pytest.raises(ConfigError):
            keyed.common_shape("beta", shape, parameters)
