"""Attention on devices: against softmax written out, masks, causal, any leading dimensions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.on_device import on_device

pytestmark = pytest.mark.usefixtures("double")

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


def plain(q, k, v, mask, causal, scale):
    scores = q @ k.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = scores + (np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask)
    if causal:
        n, m = scores.shape[-2:]
        scores = np.where(np.tril(np.ones((n, m), bool)), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - top)
    return e / e.sum(-1, keepdims=True) @ v, (top + np.log(e.sum(-1, keepdims=True)))[..., 0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [None, "floats", "truth"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
def test_is_softmax_of_products(lead, masked, causal):
    q, k, v = (RNG.standard_normal((*lead, n, d)) for n, d in ((5, 4), (6, 4), (6, 3)))
    mask = None
    if masked:
        mask = RNG.standard_normal((5, 6))
        if masked == "truth":
            mask = mask > -0.5
            mask[:, 0] = True  # each query sees something
    out, lse = on_device("attention", q, k, v, mask, causal=causal, scale=0.7)
    want, sums = plain(q, k, v, mask, causal, 0.7)
    np.testing.assert_allclose(out, want, atol=1e-12)
    np.testing.assert_allclose(lse, sums, atol=1e-12)


def test_heads_that_are_shared_and_strides():
    q, k = RNG.standard_normal((2, 4, 5, 8)), RNG.standard_normal((2, 1, 7, 8))
    out, _ = on_device("attention", q, k, k, None, causal=False, scale=1.0)
    np.testing.assert_allclose(out, plain(q, k, k, None, False, 1.0)[0], atol=1e-12)
    turned = np.asfortranarray(RNG.standard_normal((5, 8)))
    out, _ = on_device("attention", turned, k[0, 0], k[0, 0], None, causal=False, scale=1.0)
    np.testing.assert_allclose(
        out, plain(turned, k[0, 0], k[0, 0], None, False, 1.0)[0], atol=1e-12
    )


@pytest.mark.parametrize("kind", ["f4", "f2", BF16], ids=str)
def test_narrow_types_keep_wide_sums(kind):
    q, k, v = (RNG.standard_normal((2, 5, 4)).astype(kind) for _ in range(3))
    out, lse = on_device("attention", q, k, v, None, causal=True, scale=0.5)
    assert out.dtype == np.dtype(kind) and lse.dtype == "f4"
    want, sums = plain(*(a.astype("f8") for a in (q, k, v)), None, True, 0.5)
    np.testing.assert_allclose(out.astype("f8"), want, atol=3e-2)
    np.testing.assert_allclose(lse, sums, atol=1e-4)


@pytest.mark.parametrize("kind", ["f4", "f8", "f2", BF16, "c8"], ids=str)
def test_what_is_kept_is_scaled_and_the_rest_is_zero(kind):
    a = RNG.standard_normal((3, 4)).astype(kind)
    mask = RNG.random((3, 4)) > 0.5
    (found,) = on_device("masked_scale", a, mask, scale=2.0)
    np.testing.assert_array_equal(found.astype("c16"), np.where(mask, a.astype("c16") * 2, 0))
    row = mask[:1]
    assert on_device("masked_scale", a, row, scale=2.0)[0].shape == (3, 4)
