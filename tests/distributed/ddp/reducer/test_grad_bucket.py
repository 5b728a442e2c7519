"""Gradients of one bucket as a hook sees them, and what it may put in their place."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.distributed.ddp.reducer.buckets import Bucket, Slot
from disttrain.distributed.ddp.reducer.grad_bucket import GradBucket, check, fill, result_of
from disttrain.errors import DTypeError, ShapeError
from disttrain.futures import Future

pytestmark = pytest.mark.simulated


@pytest.fixture
def bucket():
    params = [nn.Parameter(dt.ones(2, 2)), nn.Parameter(dt.ones(3))]
    plan = Bucket(np.dtype("f4"), (Slot(1, 0, 4), Slot(0, 16, 3)), 19)
    return GradBucket(plan, 2, True, np.arange(19, dtype="f4"), params)


def test_gradients_are_views_in_the_shapes_of_their_parameters(bucket):
    first, second = bucket.gradients()
    assert first.tolist() == [[0, 1], [2, 3]] and second.tolist() == [16, 17, 18]
    first.zero_()
    assert bucket.buffer()[:5].tolist() == [0, 0, 0, 0, 4]
    assert (bucket.index(), bucket.is_last()) == (2, True)
    assert repr(bucket) == "GradBucket(index=2, 2 parameters)"
    bucket.parameters().clear()
    assert len(bucket.parameters()) == 2


def test_another_buffer_may_have_another_type_and_shape(bucket):
    for given in (dt.arange(19, dtype=dt.float16), dt.arange(19.0).reshape(1, 19)):
        bucket.set_buffer(given)
        assert bucket.buffer().shape == (19,) and bucket.buffer().dtype is given.dtype
        assert bucket.gradients()[1].tolist() == [16, 17, 18]
        bucket.gradients()[1].fill_(1.0)
        assert given.reshape(-1)[18].item() == 1.0


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ([1.0] * 19, TypeError, "set_buffer: a Tensor is needed, list was given"),
        (dt.ones(18), ShapeError, "18 elements was given; the bucket has 19"),
        (
            dt.ones(19, dtype=dt.complex64),
            DTypeError,
            "complex64 was given for a bucket of float32",
        ),
    ],
)
def test_what_cannot_hold_the_gradients(bucket, given, error, told):
    with pytest.raises(error, match=told):
        bucket.set_buffer(given)


def test_values_of_any_real_type_are_written_back():
    flat = np.zeros(3, "f4")
    for kind in (dt.float64, dt.float16, dt.bfloat16, dt.int32):
        fill(flat, dt.tensor([1, 2, 3], dtype=kind), "hook")
        assert flat.tolist() == [1, 2, 3]
        flat.fill(0)
    same = dt.from_numpy(flat)
    fill(flat, same, "hook")
    half = np.zeros(2, ml_dtypes.bfloat16)
    fill(half, dt.tensor([[1.5], [2.0]]), "hook")
    assert half.tolist() == [1.5, 2.0]
    with pytest.raises(DTypeError):
        check(np.zeros(2, np.int64), dt.ones(2), "hook")


def test_what_a_future_gives():
    done: Future = Future()
    done.set_result([dt.ones(2)])
    assert result_of(done, 1.0, "it").tolist() == [1.0, 1.0]
    pair: Future = Future()
    pair.set_result((1, 2))
    assert result_of(pair, 1.0, "it") == (1, 2)

    class Foreign:
        def wait(self):
            return "waited"

    assert result_of(Foreign(), 1.0, "it") == "waited"
