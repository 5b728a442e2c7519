"""What code for minimal filtering is made for, and where it cannot be made."""

from __future__ import annotations

import pytest

from disttrain.backends.llvm.kernels import implicit_product, winograd
from disttrain.backends.llvm.kernels.winograd_tiles import Shape


@pytest.mark.parametrize("count", [1, 3, 8, 13, 14, 15, 16, 20, 33, 64, 100])
def test_tiles_of_registers_are_equal_shares(count):
    rows = winograd.rows(count)
    most = implicit_product.tile("float32")[0]
    assert 1 <= rows <= most
    assert -(-count // rows) == -(-count // most)


def test_there_is_no_code_without_multiply_and_add(monkeypatch):
    class Old:
        features = frozenset({"sse2"})

    winograd.forward.cache_clear()
    winograd.backward.cache_clear()
    monkeypatch.setattr(implicit_product.host, "cpu", Old)
    assert winograd.forward(Shape(4, 4, 1), 2) is None
    assert winograd.backward(Shape(4, 4, 1), 2, 256) is None
    winograd.forward.cache_clear()
    winograd.backward.cache_clear()


def test_numbers_of_jobs_have_names_of_their_own():
    for names in (winograd.FORWARD, winograd.BACKWARD):
        assert len(set(names)) == len(names)
