"""Tensors that share memory, in a file."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import wrap
from disttrain.core.types import dtypes
from disttrain.serialize import (
    inspect,
    load,
    save,
)


def tensor(values, kind=dtypes.float32):
    return wrap(np.asarray(values, dtype=kind.np))


def again(obj, **options):
    f = io.BytesIO()
    save(obj, f)
    f.seek(0)
    return load(f, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.safetensors"


def test_tied_tensors_are_stored_once_and_stay_tied(path):
    w = tensor(np.ones((64, 64)))
    save({"embed": w, "head": wrap(w.array), "same": w}, path)
    assert os.path.getsize(path) < 2 * 64 * 64 * 4
    assert list(inspect(path).entries) == ["embed"]
    got = load(path)
    assert got["embed"] is got["same"] and got["embed"] is not got["head"]
    got["head"].array[0, 0] = 5
    assert got["embed"].array[0, 0] == 5
    assert got["embed"].storage_cell() is got["head"].storage_cell()


def test_views_of_a_larger_tensor():
    w = np.arange(12.0).reshape(3, 4)
    got = again([wrap(w[1]), wrap(w), wrap(w.T), wrap(w[:, ::2]), w[::-1]])
    np.testing.assert_array_equal(got[3].array, w[:, ::2])
    np.testing.assert_array_equal(got[4], w[::-1])
    got[0].array[2] = 99
    assert got[1].array[1, 2] == got[2].array[2, 1] == got[3].array[1, 1] == got[4][1, 2] == 99


@pytest.mark.parametrize("kind", [dtypes.float64, dtypes.bfloat16, dtypes.complex128], ids=repr)
def test_overlapping_views_without_a_whole(kind):
    w = np.arange(21).astype(kind.np)
    got = again({"odd": tensor([1], dtypes.int8), "a": wrap(w[1:12]), "b": wrap(w[8:20])})
    np.testing.assert_array_equal(got["b"].array, w[8:20])
    got["a"].array[7] = 99
    assert got["b"].array[0] == 99 and got["a"].array.flags.aligned


def test_columns_share_nothing(path):
    w = np.zeros((1000, 1000), np.float32)
    save({"first": wrap(w[:, 0]), "last": wrap(w[:, -1])}, path)
    assert os.path.getsize(path) < 10_000


def test_expanded_tensors_stay_small(path):
    one = np.ones(3, np.float32)
    save([wrap(one), wrap(np.broadcast_to(one, (1000, 3)))], path)
    assert os.path.getsize(path) < 2000
    assert load(path)[1].array.sum() == 3000


def test_the_storage_of_a_loaded_tensor_is_its_own(tmp_path):
    base = dt.arange(6.0)
    saved = {"a": dt.arange(3.0), "b": dt.arange(4), "base": base, "view": base[2:]}
    dt.save(saved, tmp_path / "x.pt")
    found = dt.load(tmp_path / "x.pt")
    assert [len(found[k].storage()) for k in saved] == [3, 4, 6, 6]
    assert dt.empty(0).set_(found["a"].storage()).tolist() == [0.0, 1.0, 2.0]
    assert found["view"].storage_offset() == 2 and found["a"].storage_offset() == 0
    assert found["base"].untyped_storage() == found["view"].untyped_storage()
    assert found["a"].untyped_storage() != found["base"].untyped_storage()
    whole = found["a"].new_empty(0).set_(found["view"].untyped_storage(), 1, (2,), (3,))
    whole.fill_(7)
    assert found["base"].tolist() == [0.0, 7.0, 2.0, 3.0, 7.0, 5.0]
