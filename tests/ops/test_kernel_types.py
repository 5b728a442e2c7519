"""Arrays of tensors have our own objects for their types: generated code knows them by identity,
and takes a slower way around what it does not know."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain.core.types.dtypes import ALL, BY_NUMPY, known
from disttrain.data import default_collate


def _unpickled(array):
    return pickle.loads(pickle.dumps(array))


MAKERS = {
    "tensor": dt.tensor,
    "as_tensor": dt.as_tensor,
    "from_numpy": dt.from_numpy,
    "asarray": dt.asarray,
    "of a list": lambda a: dt.tensor(a.tolist(), dtype=BY_NUMPY[a.dtype]),
    "collated": lambda a: default_collate([a, a]),
    "pickled": lambda a: _unpickled(dt.tensor(a)),
}


@pytest.mark.parametrize("how", [lambda a: a, _unpickled], ids=["own", "unpickled"])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("kind", [d for d in ALL if d.np.kind != "V"], ids=lambda d: d.name)
def test_types_are_known(kind, maker, how):
    assert MAKERS[maker](how(np.zeros(3, kind.np))).array.dtype is kind.np


def test_memory_is_the_same():
    array = _unpickled(np.zeros(3, np.float32))
    assert np.shares_memory(known(array), array)
