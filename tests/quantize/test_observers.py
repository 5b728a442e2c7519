"""Observers: what they remember, and which grid they give."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import quantize
from disttrain.errors import ConfigError
from disttrain.quantize import observers, qint8, quint8, types

BATCHES = (dt.tensor([[-1.0, 2.0], [0.5, 0.0]]), dt.tensor([[-3.0, 1.0], [0.0, 6.0]]))


def seen(observer):
    for x in BATCHES:
        assert observer(x) is x
    return observer


def qparams(observer):
    return [t.tolist() for t in observer.calculate_qparams()]


def test_ranges():
    one = seen(quantize.MinMaxObserver())
    assert (one.min_val.item(), one.max_val.item()) == (-3, 6)
    scale, zero = qparams(one)
    assert scale == pytest.approx([9 / 255]) and zero == [85]
    moving = seen(quantize.MovingAverageMinMaxObserver(averaging_constant=0.5))
    assert (moving.min_val.item(), moving.max_val.item()) == (-2, 4)
    rows = seen(quantize.PerChannelMinMaxObserver(ch_axis=0))
    assert rows.min_val.tolist() == [-3, 0] and rows.max_val.tolist() == [2, 6]
    columns = seen(quantize.MovingAveragePerChannelMinMaxObserver(1.0, ch_axis=1))
    assert columns.min_val.tolist() == [-3, 1] and columns.max_val.tolist() == [0, 6]


@pytest.mark.parametrize(
    ("given", "scale", "zero"),
    [
        ({"dtype": qint8}, 9 / 255, -43),
        ({"dtype": qint8, "qscheme": types.per_tensor_symmetric}, 12 / 255, 0),
        ({"dtype": quint8, "qscheme": types.per_tensor_symmetric}, 12 / 255, 128),
        ({"dtype": quint8, "reduce_range": True}, 9 / 127, 42),
        ({"dtype": qint8, "quant_min": -8, "quant_max": 7}, 9 / 15, -3),
        ({"dtype": quint8, "eps": 0.5}, 0.5, 6),
    ],
)
def test_grids(given, scale, zero):
    found = qparams(seen(quantize.MinMaxObserver(**given)))
    assert found[0] == pytest.approx([scale]) and found[1] == [zero]


def test_fractions_of_zero_points():
    rows = seen(quantize.default_float_qparams_observer())
    scale, zero = rows.calculate_qparams()
    np.testing.assert_allclose(scale.numpy(), [5 / 255, 6 / 255], 1e-6)
    np.testing.assert_allclose(zero.numpy(), [3 / (5 / 255), 0], 1e-6)


def test_histograms_cut_off_what_is_rare():
    dt.manual_seed(0)
    one = quantize.HistogramObserver(bins=512, quant_min=0, quant_max=15)
    x = dt.randn(10_000)
    one(x)
    one(dt.tensor([60.0, float("inf"), float("nan")]))
    assert one.max_val.item() == 60 and one.histogram.sum().item() == pytest.approx(10_001)
    scale, _ = one.calculate_qparams()
    assert scale.item() * 15 < 30
    one.reset_min_max_vals()
    assert not one.has_seen and one.histogram.sum().item() == 0


def test_nothing_seen_is_told_and_empty_batches_are_nothing():
    one = quantize.MinMaxObserver()
    one(dt.ones(0))
    with pytest.warns(UserWarning, match="must run observer before calling calculate_qparams"):
        assert qparams(one) == [[1.0], [0]]


def test_nan_has_no_grid():
    one = quantize.MinMaxObserver()
    one(dt.tensor([1.0, float("nan")]))
    with pytest.raises(ConfigError, match="nan was among the observed numbers"):
        one.calculate_qparams()


def test_state_goes_over():
    for make in (
        quantize.HistogramObserver,
        quantize.MinMaxObserver,
        quantize.PerChannelMinMaxObserver,
    ):
        old, new = seen(make()), make()
        new.load_state_dict(old.state_dict())
        assert qparams(new) == qparams(old)


def test_arguments_are_given_beforehand():
    make = quantize.MinMaxObserver.with_args(dtype=qint8).with_args(reduce_range=True)
    assert (make().quant_min, make().quant_max) == (-64, 63) and "MinMaxObserver" in repr(make)
    count = iter(range(9))
    make = make.with_callable_args(eps=lambda: float(next(count)))
    assert (make().eps.item(), make().eps.item()) == (0, 1)


def test_others():
    x = dt.ones(2)
    fixed = quantize.default_fixed_qparams_range_0to1_observer()
    assert fixed(x) is x and qparams(fixed) == [[1 / 256], [0]]
    recording = quantize.RecordingObserver()
    recording(x)
    assert recording.get_tensor_value()[0].equal(x)
    assert quantize.NoopObserver()(x) is x
    with pytest.raises(ConfigError, match="should not be called"):
        quantize.PlaceholderObserver().calculate_qparams()


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: quantize.MinMaxObserver(quant_min=3, quant_max=1), ConfigError, "must be less"),
        (lambda: quantize.MinMaxObserver(quant_min=3, quant_max=9), ConfigError, "must include 0"),
        (lambda: quantize.HistogramObserver(qscheme=types.per_channel_affine), ConfigError,
         "per_tensor"),
        (lambda: quantize.MinMaxObserver(qscheme=types.per_tensor_symmetric, reduce_range=True),
         NotImplementedError, "Cannot reduce range"),
        (lambda: quantize.MinMaxObserver(dtype=dt.float32), TypeError, "qint8"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(make, error, said):
    with pytest.raises(error, match=said):
        make()
    assert observers.UniformQuantizationObserverBase is observers.UniformObserver
