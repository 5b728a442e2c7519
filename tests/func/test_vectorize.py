"""Functions of core dimensions over batches that are broadcast."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import func
from disttrain.func.vectorize import along_axis, parsed, per_element, vectorized

A, B = dt.arange(24.0).reshape(2, 3, 4), dt.arange(12.0).reshape(3, 4)


def test_elements_are_broadcast():
    got = vectorized(lambda a, b: a * b, [A[:, :1], B], None)
    np.testing.assert_array_equal(got.numpy(), (A[:, :1] * B).numpy())


def test_core_dimensions():
    got = vectorized(lambda a, b: a @ b, [A, B], "(n),(n)->()")
    np.testing.assert_array_equal(got.numpy(), (A * B).sum(-1).numpy())
    one, two = vectorized(lambda a: (a.sum(), a * 2), [A], "(n)->(),(n)")
    assert one.shape == (2, 3) and two.shape == (2, 3, 4)


def test_misfits_are_told():
    assert parsed("(n, m),(m)->(n)") == ([("n", "m"), ("m",)], [("n",)])
    with pytest.raises(ValueError, match="not a valid gufunc signature"):
        parsed("n->m")
    with pytest.raises(ValueError, match="inconsistent size"):
        vectorized(lambda a, b: a, [A, B[:, :2]], "(n),(n)->()")
    with pytest.raises(ValueError, match="not have enough dimensions"):
        vectorized(lambda a: a, [dt.tensor(1.0)], "(n)->()")
    with pytest.raises(ValueError, match="does not match core dimensions"):
        vectorized(lambda a: a, [A], "(n)->()")
    with pytest.raises(TypeError, match="wrong number of positional"):
        vectorized(lambda a: a, [A], "(n),(n)->()")


def test_searches_are_batched():
    """By one rule, whatever of sequences and values is of the batch (a warning is an error)."""
    edges, values = dt.tensor([[1.0, 2, 3], [2, 3, 9]]), dt.tensor([[0.0, 2.5], [4, 8]])
    for dims in ((0, 0), (None, 0), (0, None)):
        args = edges if dims[0] == 0 else edges[0], values if dims[1] == 0 else values[0]
        got = func.vmap(dt.searchsorted, dims)(*args)
        for k in range(2):
            one = [a if d is None else a[k] for a, d in zip(args, dims, strict=True)]
            assert got[k].tolist() == dt.searchsorted(*one).tolist()


def test_lines():
    x = dt.arange(6.0).reshape(2, 3)
    assert along_axis(lambda v: v.sum(), 0, x).tolist() == [3, 5, 7]
    assert along_axis(lambda v: v * 2, -1, x).tolist() == (x * 2).tolist()


def test_excluded_arguments():
    run = per_element(lambda a, n, scale: a * n * scale, {1}, lambda t: t, None)
    assert run(dt.ones(3), 2, scale=dt.tensor([1.0, 2.0, 3.0])).tolist() == [2, 4, 6]
