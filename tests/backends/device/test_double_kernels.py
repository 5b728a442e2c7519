"""Kernels, types and work of others on the strict device double."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from standins.device_double.double import HostUse, StreamRace, Unsupported

from disttrain.backends.lang.expr import var
from disttrain.backends.lang.kernel import Array, Scalar, elementwise
from disttrain.errors import DTypeError

SCALED = elementwise("scaled", var("x") * var("a"), (Array("x", "float32"), Scalar("a")), "float32")


def up(double, values, kind="f4"):
    return double.upload(np.asarray(values, kind), 0)


def test_kernels_take_what_a_device_could(double):
    x, two, out = up(double, [1, 2, 3]), up(double, 2.0), double.empty((3,), "f4")
    with double.quiet() as counts:
        double.launch(SCALED, (x, two, out))  # a number that the host does not know
    assert counts.launches == 1
    np.testing.assert_array_equal(double.download(out), [2, 4, 6])
    double.launch(SCALED, (5.0, 2.0, out))  # a number instead of an array that is read
    np.testing.assert_array_equal(double.download(out), [10, 10, 10])


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (lambda d, x: (np.ones(3, "f4"), 2.0, x), HostUse),
        (lambda d, x: (x, 2.0, np.ones(3, "f4")), HostUse),
        (lambda d, x: (x, 2.0, 1.0), HostUse),
        (lambda d, x: (x, np.ones(3), x), HostUse),
        (lambda d, x: (x.astype("f8"), 2.0, x), DTypeError),
        (lambda d, x: (d.upload(np.ones(3, "f4"), 1), 2.0, x), RuntimeError),
    ],
)
def test_and_nothing_else(double, args, error):
    x = up(double, [1, 2, 3])
    with pytest.raises(error):
        double.launch(SCALED, args(double, x))


def test_types_that_cupy_has_no_way_for(double):
    half = up(double, [3, 1, 2], ml_dtypes.bfloat16)
    assert np.where(half > 1, half, half).dtype == np.float32
    assert np.clip(half, 1.0, 2.0).dtype == np.float32
    assert (half * 2).dtype == half.dtype and half.sum().dtype == half.dtype
    for call in (np.sort, np.cumsum, lambda a: np.linalg.inv(a.reshape(1, 3)[:, :1])):
        with pytest.raises(Unsupported):
            call(half)
    with pytest.raises(Unsupported):
        double.upload(np.zeros(2, ml_dtypes.float8_e4m3fn), 0)
    with pytest.raises(Unsupported):
        double.matmul(up(double, np.ones((2, 2))), half.reshape(3, 1))
    square = up(double, np.ones((2, 2)))
    with pytest.raises(Unsupported, match="lies over"):
        double.matmul(square, square, square)


def test_bits_that_nobody_wrote_are_found(double):
    with pytest.raises(Unsupported, match="outside"):
        double.xp.lib.stride_tricks.as_strided(up(double, [1, 2]), (4,), (4,))
    assert np.isnan(double.download(double.xp.empty_like(up(double, [1.0])))).all()


def test_waits_are_counted_where_the_host_waits(double):
    a = up(double, [1, 0, 2])
    for call in (np.nonzero, np.unique, lambda a: a[a > 0], lambda a: np.where(a > 0)):
        double.counts.clear()
        call(a)
        assert len(double.counts.waits) == 1
    with pytest.raises(AssertionError, match="unique"), double.quiet():
        np.unique(a)


def test_work_that_waits_for_others(double):
    """What comes after it in its stream, and nothing else, waits until it can be done."""
    arrived: list = []
    a, b = up(double, [1, 2]), up(double, [5, 5])
    side = double.stream(0)
    ready = double.event()
    ready.record(double.current_stream())
    side.wait_event(ready)

    def finish():
        a._hidden[...] *= 10

    double.enqueue("all_reduce", side, [], [a], lambda: bool(arrived), finish)
    assert not side.query()
    b + 1  # another stream, other memory
    with pytest.raises(StreamRace, match="all_reduce"):
        a + 1
    done = double.event()
    done.record(side)
    double.current_stream().wait_event(done)
    view = a.reshape(2, 1)  # no work
    arrived.append(True)
    np.testing.assert_array_equal(double.download(view + 1), [[11], [21]])
    assert side.query()
