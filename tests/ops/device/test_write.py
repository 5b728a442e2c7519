"""Writes into memory of devices: conversions, overlaps, and regions behind several views."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.device.platform import platform
from disttrain.ops.device.write import write

pytestmark = pytest.mark.usefixtures("double")

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


def up(a):
    return platform("cuda").upload(np.asarray(a), 0)


def down(a):
    return platform("cuda").download(a)


@pytest.mark.parametrize("kind", ["f4", BF16, "i4", "u1", "?", "c8"], ids=str)
@pytest.mark.parametrize("source", ["f8", "i8", "c16", "?"])
def test_any_conversion(kind, source):
    dst = up(np.zeros((2, 3), kind))
    values = np.array([1, 0, 2]).astype(source)
    write(platform("cuda"), dst, up(values))
    want = np.zeros((2, 3), kind)
    want[...] = (values.real if source == "c16" and kind != "c8" else values).astype(kind)
    np.testing.assert_array_equal(down(dst).astype("c16"), want.astype("c16"))


def test_numbers_wrap_as_on_the_host():
    dst = up(np.zeros(2, "u1"))
    write(platform("cuda"), dst, 257)
    assert down(dst).tolist() == [1, 1]
    write(platform("cuda"), dst, -1)
    assert down(dst).tolist() == [255, 255]
    half = up(np.zeros(1, BF16))
    write(platform("cuda"), half, 1.5)
    assert down(half).astype("f4").tolist() == [1.5]


def test_memory_that_overlaps_itself_is_not_written_to():
    dst = platform("cuda").xp.broadcast_to(up(np.zeros(1, "f4")), (3,))
    with pytest.raises(ValueError, match=r"\[3\]"):
        write(platform("cuda"), dst, 1.0)


def test_elements_are_read_before_they_are_written():
    x = dt.arange(5.0, device="cuda")
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]
    y = dt.arange(4.0, device="cuda").reshape(2, 2)
    y.copy_(y.T)
    assert y.tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    "region",
    [
        lambda x: x[1:, ::2],
        lambda x: x.T[0],
        lambda x: x.as_strided((2, 2), (5, 1), 1),
        lambda x: x[:, 1].unsqueeze(0).expand(1, 3),
    ],
)
def test_gradients_of_writes_through_views(region):
    def run(place):
        base = dt.arange(12.0, dtype=dt.float64, device=place, requires_grad=True)
        x = (base * 1).reshape(3, 4)
        part = region(x)
        value = dt.full(tuple(part.shape), 2.0, dtype=dt.float64, device=place, requires_grad=True)
        part.mul_(value)
        (x * dt.arange(12.0, device=place).reshape(3, 4)).sum().backward()
        return x.tolist(), base.grad.tolist(), value.grad.tolist()

    assert run("cuda") == run("cpu")


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_one_number_may_be_written_to_repeated_elements(place):
    x = dt.zeros(1, 3, device=place)
    assert x.expand(2, 3).fill_(4.0).shape == (2, 3) and x.tolist() == [[4.0] * 3]
    x.expand(2, 3).zero_()
    assert x.tolist() == [[0.0] * 3]
    for change in (lambda v: v.add_(1.0), lambda v: v.copy_(dt.ones(2, 3, device=place))):
        with pytest.raises(RuntimeError, match="refers to a single memory location"):
            change(x.expand(2, 3))


def test_complex_parts_are_written():
    def run(place):
        x = dt.tensor([1 + 2j, 3 - 1j], device=place)
        x.real[...] = 5.0
        dt.view_as_real(x)[:, 1] = dt.tensor([7.0, 8.0], device=place)
        return x.tolist()

    assert run("cuda") == run("cpu") == [5 + 7j, 5 + 8j]
