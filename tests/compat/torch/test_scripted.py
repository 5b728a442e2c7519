"""``torch.jit`` and ``torch.sparse``: the same numbers, computed in the ordinary way."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch import scripted
from disttrain.compat.torch.shim import MissingName


def test_scripts_run_as_they_are_written() -> None:
    jit = scripted.jit()

    @jit.script
    def double(x):
        return x + x

    @jit.ignore(drop=True)
    def ignored(x):
        return x

    layer = dt.nn.Linear(2, 1)
    assert jit.script(layer) is layer and jit.trace(layer, dt.ones(2)) is layer
    assert double(dt.ones(2)).tolist() == [2.0, 2.0] and ignored(3) == 3
    assert jit.annotate(int, 4) == 4 and jit.isinstance(4, int) and not jit.is_scripting()
    assert jit.wait(jit.fork(double, dt.ones(1))).tolist() == [2.0]
    with pytest.raises(ZeroDivisionError):
        jit.wait(jit.fork(lambda: 1 // 0))
    assert not isinstance(double, jit.ScriptFunction)
    with pytest.raises(MissingName, match=r"torch\.jit\.load is not part of"):
        _ = jit.load


def test_sums_and_products_of_sparse_tensors() -> None:
    sparse = scripted.sparse()
    x = dt.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3), requires_grad=True)
    assert sparse.sum(x).item() == 12.0 and sparse.sum(x, 0).tolist() == [4.0, 0.0, 8.0]
    assert sparse.sum(x, dtype=dt.float64).dtype is dt.float64
    y = dt.ones(3, 2, requires_grad=True)
    sparse.mm(x, y).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2 and y.grad.tolist() == [
        [4.0] * 2,
        [0.0] * 2,
        [8.0] * 2,
    ]
    assert sparse.addmm(dt.ones(2, 2), x, y).tolist() == [[4.0, 4.0], [10.0, 10.0]]
