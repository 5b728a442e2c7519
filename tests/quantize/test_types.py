"""Element types of quantized tensors."""

from __future__ import annotations

import copy
import pickle

import pytest

import disttrain as dt
from disttrain.errors import DTypeError
from disttrain.quantize import types


def test_types_are_found_by_their_integers_too():
    for kind, other in (("qint8", dt.int8), ("quint8", dt.uint8), ("qint32", dt.int32)):
        found = getattr(types, kind)
        assert types.quantized(other, "x") is found is types.quantized(found, "x")
        assert found.np == other.np and repr(found) == f"disttrain.{kind}"
    with pytest.raises(DTypeError, match=r"quantize_per_tensor: .*float32 given; needed one of"):
        types.quantized(dt.float32, "quantize_per_tensor")


def test_limits():
    assert types.limits(types.qint8) == (-128, 127) and types.limits(types.quint8) == (0, 255)
    assert types.limits(types.qint8, True) == (-64, 63) and types.limits(types.quint8, True) == (
        0,
        127,
    )
    assert types.limits(types.qint32, True) == (-(1 << 31), (1 << 31) - 1)


def test_they_are_copied_and_pickled_as_what_they_are():
    assert pickle.loads(pickle.dumps(types.qint8)) is types.qint8
    assert copy.deepcopy(types.quint8) is types.quint8
    scheme = types.per_channel_affine
    assert pickle.loads(pickle.dumps(scheme)) == scheme and repr(scheme).endswith(scheme)
