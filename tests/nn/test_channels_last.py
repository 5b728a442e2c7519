"""Convolutions and pools with channels last, against those with channels first."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.nn import channels_last
from disttrain.nn import functional as F  # noqa: N812


def test_same_padding_has_the_odd_row_after():
    assert channels_last.edges((5, 4), [3, 2], [2, 1], [1, 1], "SAME") == [(1, 1), (0, 1)]
    assert channels_last.edges((5,), [3], [1], [2], "VALID") == [(0, 0)]
    with pytest.raises(ValueError, match="allowed values"):
        channels_last.edges((5,), [3], [1], [1], "full")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_convolution_is_that_of_channels_first(n):
    dt.manual_seed(0)
    x, w = dt.randn(2, *[5] * n, 4), dt.randn(*[3] * n, 2, 6)
    found = channels_last.conv(x, w, 2)
    kernel = w.permute(n + 1, n, *range(n))
    wanted = getattr(F, f"conv{n}d")(x.movedim(-1, 1), kernel, stride=2, groups=2).movedim(1, -1)
    assert dt.equal(found, wanted)
    first = channels_last.conv(x.movedim(-1, 1), w, 2, layout="NCHW")
    assert dt.equal(first.movedim(1, -1), found)
    with pytest.raises(dt.errors.ShapeError, match="depth"):
        channels_last.conv(x[..., :3], w)


def test_a_transposed_convolution_is_the_gradient():
    x, w = dt.randn(1, 5, 5, 2, requires_grad=True), dt.randn(3, 3, 2, 4)
    y = channels_last.conv(x, w, 2, "SAME")
    g = dt.randn(*y.shape)
    (wanted,) = dt.autograd.grad(y, x, g)
    assert dt.allclose(channels_last.conv_transpose(g, w, (5, 5), 2, "SAME"), wanted, atol=1e-5)


def test_pools_count_what_is_there():
    x = dt.arange(25.0).reshape(1, 5, 5, 1)
    mean = channels_last.avg_pool(x, 3, 2, "SAME")
    assert mean[0, :, :, 0].tolist()[0] == [3.0, 4.5, 6.0]
    assert dt.equal(channels_last.avg_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME"), mean)
    first = channels_last.avg_pool(x.movedim(-1, 1), [1, 1, 3, 3], [1, 1, 2, 2], "SAME", "NCHW")
    assert dt.equal(first.movedim(1, -1), mean)
    assert channels_last.max_pool(x, 2, 2, "SAME")[0, :, :, 0].tolist()[2] == [21.0, 23.0, 24.0]


def test_channels_and_squares():
    x = dt.arange(32.0).reshape(1, 4, 4, 2)
    assert dt.equal(channels_last.depth_to_space(channels_last.space_to_depth(x, 2), 2), x)
    assert channels_last.depthwise_conv(x, dt.ones(2, 2, 2, 3)).shape == (1, 3, 3, 6)
    assert channels_last.separable_conv(x, dt.ones(2, 2, 2, 3), dt.ones(1, 1, 6, 5)).shape[3] == 5
    assert channels_last.resize(x, (2, 8)).shape == (1, 2, 8, 2)
    assert channels_last.local_response_norm(x, 1).shape == x.shape
    with pytest.raises(ValueError, match="not implemented"):
        channels_last.resize(x, (2, 2), "lanczos3")
