"""What verbs take and bring: bytes that are kept, and put back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.record.log.movements import VERBS, copy_own, fill, hash_of

pytestmark = pytest.mark.simulated


def test_only_what_comes_from_others_is_kept():
    outs, mine = [np.zeros(2), np.zeros(2), np.zeros(2)], np.ones(2)
    moved = VERBS["all_gather"](1, outs, mine)
    assert [a is b for a, b in zip(moved.got, (outs[0], outs[2]))] == [True, True]
    copy_own(moved)
    assert outs[1].tolist() == [1.0, 1.0] and outs[0].tolist() == [0.0, 0.0]
    assert not VERBS["broadcast"](0, mine, 0).got
    assert VERBS["broadcast"](1, mine, 0).got[0] is mine
    assert not VERBS["send"](0, mine, 1, 7).got


@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64", ml_dtypes.bfloat16, "int8"])
def test_bytes_are_put_back(dtype):
    arrays = [np.arange(3).astype(dtype), np.zeros(0, dtype), np.arange(5).astype(dtype)]
    data = memoryview(b"".join(a.tobytes() for a in arrays))
    into = [np.zeros(3, dtype), np.zeros(0, dtype), np.zeros(5, dtype)]
    assert fill(into, data)
    assert hash_of(into) == hash_of(arrays) != hash_of([np.zeros(8, dtype)])
    assert not fill([np.zeros(2, dtype)], data)


def test_nothing_has_no_hash():
    assert hash_of([]) == hash_of([np.zeros(0)]) == ""
