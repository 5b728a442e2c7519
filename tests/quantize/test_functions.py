"""Functions that make quantized tensors, and round as if they did."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import quantize
from disttrain.errors import ConfigError, DTypeError
from disttrain.quantize import qint8, qint32, quint8

WHOLE = dt.ones(2).int()


def test_a_grid_for_all_and_for_each_of_several_tensors():
    x = dt.tensor([-1.0, 0.0, 0.26])
    q = quantize.quantize_per_tensor(x, 0.1, 10, quint8)
    assert quantize.int_repr(q).tolist() == [0, 10, 13]
    assert (quantize.q_scale(q), quantize.q_zero_point(q)) == (0.1, 10)
    both = quantize.quantize_per_tensor([x, x], dt.tensor([0.1, 0.2]), dt.tensor([10, 0]), quint8)
    assert both[0].equal(q) and both[1].int_repr().tolist() == [0, 0, 1]
    numbers = quantize.dequantize(both)
    assert isinstance(numbers, tuple) and numbers[0].equal(q.dequantize())
    assert quantize.dequantize(x.half()).dtype is dt.float32


def test_large_integers_keep_their_digits():
    q = quantize.quantize_per_tensor(dt.tensor([123456.789]), 1e-4, 0, qint32)
    assert abs(q.int_repr().item() - 1234567890) < 100  # (float32 has 24 bits of it)


def test_channels():
    zeros = dt.tensor([0.5, 1.0])
    q = quantize.quantize_per_channel(dt.ones(3, 2), dt.tensor([1.0, 0.5]), zeros, 1, quint8)
    assert quantize.q_per_channel_axis(q) == 1 and quantize.q_per_channel_zero_points(q).equal(
        zeros
    )
    assert quantize.q_per_channel_scales(q).tolist() == [1.0, 0.5]
    assert q.qscheme() == "per_channel_affine_float_qparams"
    assert q.int_repr()[0].tolist() == [2, 3]


def test_dynamic_grids():
    q = quantize.quantize_per_tensor_dynamic(dt.tensor([-1.0, 1.0, 3.0]), quint8, False)
    assert q.int_repr().tolist() == [0, 128, 255]
    assert (
        quantize.quantize_per_tensor_dynamic(dt.ones(2), qint8, True).int_repr().tolist()
        == [63] * 2
    )
    with pytest.raises(ConfigError, match="an empty tensor has no range"):
        quantize.quantize_per_tensor_dynamic(dt.ones(0), quint8, False)


def test_as_if():
    x = dt.tensor([[0.12, 9.0], [0.12, 9.0]], requires_grad=True)
    y = quantize.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 15)
    np.testing.assert_allclose(y.detach().numpy(), [[0.1, 1.5]] * 2, 1e-6)
    y.sum().backward()
    assert x.grad.tolist() == [[1, 0]] * 2
    scale, zero = dt.tensor([0.1, 1.0]), dt.tensor([0, 0])
    y = quantize.fake_quantize_per_channel_affine(x, scale, zero, 0, 0, 15)
    np.testing.assert_allclose(y.detach().numpy(), [[0.1, 1.5], [0.0, 9.0]], 1e-6)


@pytest.mark.parametrize(
    ("run", "error", "said"),
    [
        (lambda: quantize.quantize_per_tensor([1.0], 0.1, 0, quint8), TypeError, "iterable|zip"),
        (lambda: quantize.quantize_per_tensor(1.0, 0.1, 0, quint8), TypeError, "float given"),
        (lambda: quantize.quantize_per_tensor(WHOLE, 0.1, 0, quint8), DTypeError, "int32"),
        (lambda: quantize.quantize_per_tensor(dt.ones(2), 0.1, 0, dt.float32), DTypeError, "qint8"),
        (lambda: quantize.quantize_per_tensor(dt.ones(2), -1, 0, quint8), ConfigError, "scale"),
        (lambda: quantize.int_repr(dt.ones(2)), TypeError, "needed a quantized tensor"),
        (lambda: quantize.fake_quantize_per_tensor_affine(dt.ones(2), 1.0, 0, 5, 1), ConfigError,
         "quant_min=5 is greater"),
        (lambda: quantize.fake_quantize_per_tensor_affine(WHOLE, 1.0, 0, 0, 1), DTypeError,
         "int32 given"),
        (lambda: quantize.fake_quantize_per_channel_affine(
            dt.ones(2, 3), dt.ones(2), dt.ones(2), 1, 0, 1), ConfigError, "not consistent"),
        (lambda: quantize.fake_quantize_per_channel_affine(
            dt.ones(2, 3), dt.ones(2), dt.ones(2), 2, 0, 1), ConfigError, "axis must be"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(run, error, said):
    with pytest.raises(error, match=said):
        run()
