"""Dimensions by a text: what comes out, and what is refused."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import ConfigError
from disttrain.func import rearrange

X = dt.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("pattern", "lengths", "want"),
    [
        ("b h w -> b (h w)", {}, X.reshape(2, 12)),
        ("b h w -> w h b", {}, X.permute(2, 1, 0)),
        ("b (h g) w -> h b g w", {"h": 3}, X.reshape(2, 3, 1, 4).permute(1, 0, 2, 3)),
        ("b ... -> ... b", {}, X.permute(1, 2, 0)),
        ("b ... w -> w (b ...)", {}, X.reshape(6, 4).t()),
        ("b h w -> (b h) w 1", {}, X.reshape(6, 4, 1)),
        ("(b) h w -> b () h w", {}, X.reshape(2, 1, 3, 4)),
        ("b h (w v)->v h b w", {"v": 2}, X.reshape(2, 3, 2, 2).permute(3, 1, 0, 2)),
    ],
)
def test_what_a_pattern_says(pattern, lengths, want):
    assert dt.equal(rearrange(X, pattern, **lengths), want)
    x = X.double().requires_grad_()
    rearrange(x, pattern, **lengths).square().sum().backward()
    assert dt.equal(x.grad, 2 * x.detach())


def test_several_are_stacked():
    assert dt.equal(rearrange([X, X + 1], "n b h w -> b h w n"), dt.stack([X, X + 1], -1))


@pytest.mark.parametrize(
    ("pattern", "lengths", "text"),
    [
        ("b h w", {}, "single '->'"),
        ("b h w -> b h", {}, "only on one side"),
        ("b h -> h b", {}, "Number of dimensions"),
        ("b b w -> b w", {}, "duplicate dimension 'b'"),
        ("b h w -> w h b", {"z": 2}, "not found"),
        ("b (h g) w -> b h g w", {}, "several dimensions at once"),
        ("b (h g) w -> b h g w", {"h": 2}, "cannot be split"),
        ("b h! w -> b h w", {}, "Unknown character '!'"),
        ("b h 4 -> h b", {}, "unnamed axes of size 1"),
        ("b (h w -> b h w", {}, "not balanced"),
    ],
)
def test_what_a_pattern_cannot_say(pattern, lengths, text):
    with pytest.raises(ConfigError, match=text):
        rearrange(X, pattern, **lengths)
