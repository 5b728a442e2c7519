"""Transforms of short times: definitions, the way back, derivatives, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.filterwarnings("ignore:A window was not provided")


def test_each_part_is_transformed():
    x = RNG.normal(size=30)
    window = np.hanning(8)
    got = dt.stft(dt.tensor(x), 8, 3, window=dt.tensor(window), center=False, return_complex=True)
    parts = np.lib.stride_tricks.sliding_window_view(x, 8)[::3] * window
    np.testing.assert_allclose(got.numpy(), np.fft.rfft(parts).T, atol=1e-12)
    pairs = dt.stft(dt.tensor(x), 8, 3, return_complex=False)
    assert pairs.shape == (5, 11, 2) and not pairs.is_complex()


def test_a_missing_window_is_warned_of():
    with pytest.warns(UserWarning, match="A window was not provided"):
        dt.stft(dt.ones(20), 8, return_complex=True)


@pytest.mark.parametrize("mode", ["reflect", "constant", "replicate", "circular"])
def test_ends_are_padded(mode):
    x = RNG.normal(size=(2, 20))
    names = {"replicate": "edge", "circular": "wrap"}
    padded = np.pad(x, ((0, 0), (4, 4)), names.get(mode, mode))
    got = dt.stft(dt.tensor(x), 8, 4, pad_mode=mode, return_complex=True)
    want = dt.stft(dt.tensor(padded), 8, 4, center=False, return_complex=True)
    np.testing.assert_allclose(got.numpy(), want.numpy())


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize(("hop", "length"), [(None, None), (2, 6), (5, 8)])
def test_the_way_back(hop, length, kind, normalized):
    x = RNG.normal(size=(2, 40)) + (1j * RNG.normal(size=(2, 40)) if kind == "complex" else 0)
    window = dt.hann_window(length or 8, periodic=False, dtype=dt.float64) + 0.1
    how = {"window": window, "normalized": normalized, "win_length": length}
    there = dt.stft(dt.tensor(x), 8, hop, return_complex=True, **how)
    back = dt.istft(there, 8, hop, length=40, return_complex=kind == "complex", **how)
    np.testing.assert_allclose(back.numpy(), x, atol=1e-12)
    assert there.istft(8, hop, **how).shape[-1] <= 40


def test_derivatives():
    x = dt.tensor(RNG.normal(size=20), requires_grad=True)
    window = dt.hann_window(8, dtype=dt.float64, requires_grad=True)

    def there(x, window):
        return x.stft(8, 2, window=window, return_complex=True)

    assert dt.autograd.gradcheck(there, (x, window))
    assert dt.autograd.gradcheck(
        lambda x, window: dt.istft(there(x, window), 8, 2, window=window + 1), (x, window)
    )


@pytest.mark.parametrize(("options", "said"), [
    ({}, "return_complex parameter"), ({"hop_length": 0, "return_complex": True}, "hop_length > 0"),
    ({"win_length": 9, "return_complex": True}, "win_length <= n_fft"),
    ({"window": dt.ones(3), "return_complex": True}, "window tensor of size"),
    ({"pad_mode": "x", "return_complex": True}, "pad_mode='x'"),
    ({"align_to_window": True, "return_complex": True}, "align_to_window"),
    ({"window": dt.ones(8) * 1j, "onesided": True}, "onesided output"),
])  # fmt: skip
def test_wrong_calls_say_what_is_wrong(options, said):
    with pytest.raises(RuntimeError, match=said):
        dt.stft(dt.ones(20), 8, **options)


@pytest.mark.parametrize(("x", "options", "said"), [
    (dt.ones(5, 9), {}, "complex-valued input"), (dt.ones(5), {}, "complex-valued"),
    (dt.ones(6, 9) * 1j, {}, "frequency dimension"),
    (dt.ones(5, 9) * 1j, {"hop_length": 9}, "hop_length <= win_length"),
    (dt.ones(5, 9) * 1j, {"return_complex": True}, "onesided output"),
    (dt.ones(5, 9) * 1j, {"window": dt.zeros(8)}, "window overlap add min"),
])  # fmt: skip
def test_a_way_back_that_is_not_there(x, options, said):
    with pytest.raises(RuntimeError, match=said):
        dt.istft(x, 8, **options)
