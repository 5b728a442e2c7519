"""Public draws: ends, and what is refused."""

from __future__ import annotations

import math

import pytest

import disttrain as dt


def test_ends_of_binomials():
    found = dt.binomial(dt.tensor([0.0, 5.0, 5.0, math.nan]), dt.tensor([0.5, 0.0, 1.0, 0.5]))
    assert found[:3].tolist() == [0, 0, 5] and found[3].isnan().item()
    with pytest.raises(TypeError, match="count of"):
        dt.binomial(dt.tensor([3]), dt.tensor([0.5]))
    with pytest.raises(TypeError, match="same dtype"):
        dt.binomial(dt.tensor([3.0]), dt.tensor([0.5], dtype=dt.float64))


def test_integers_that_a_type_lacks_are_not_drawn():
    for kind, low, high, said in (
        (dt.uint8, -1, 5, "from is out of bounds"), (dt.uint8, 0, 257, "to - 1 is out of bounds"),
        (dt.bool, 0, 3, "to - 1 is out of bounds"), (dt.int64, 3, 3, "less than 'to'"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=said):
            dt.empty(4, dtype=kind).random_(low, high)
    with pytest.warns(UserWarning, match="out of bounds"):
        dt.empty(4).random_(0, 2**25)
    x = dt.empty(5000, dtype=dt.int8).random_(-128, None)
    assert x.min().item() < -100 and x.max().item() > 100


def test_random_tensors_lie_as_what_they_are_like():
    x = dt.empty(2, 3, 4, 5).contiguous(memory_format=dt.channels_last)
    for like in (dt.rand_like, dt.randn_like, lambda t, **k: dt.randint_like(t, 9, **k)):
        assert like(x).stride() == x.stride()
        assert like(x, memory_format=dt.contiguous_format).is_contiguous()
        assert like(x.permute(3, 1, 0, 2)).stride() == x.permute(3, 1, 0, 2).stride()


def test_normal_numbers_do_not_move_with_their_parameters():
    mean, std = dt.tensor([1.0, 2.0], requires_grad=True), dt.ones(2, requires_grad=True)
    out = dt.normal(mean, std)
    out.sum().backward()
    assert mean.grad.tolist() == [0.0, 0.0] == std.grad.tolist()
    assert not dt.normal(mean.detach(), 1.0).requires_grad
    with pytest.raises(RuntimeError, match="all elements of std"):
        dt.normal(0.0, dt.tensor([-1.0, 1.0]))


def test_permutations_need_a_type_that_counts_so_far():
    assert sorted(dt.randperm(257, dtype=dt.bfloat16).tolist()) == list(range(257))
    for n, kind in ((258, dt.bfloat16), (257, dt.uint8)):
        with pytest.raises(RuntimeError, match="too large"):
            dt.randperm(n, dtype=kind)
