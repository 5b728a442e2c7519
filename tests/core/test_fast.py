"""The short ways of common operations: what they do is what the gate does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import fast
from disttrain.core.gate import gate
from disttrain.ops.primitives import elementwise as el
from disttrain.ops.primitives.reduce import sum_

OPERANDS = [
    dt.ones(2, 3), dt.ones(2, 3).double(), dt.arange(3), dt.tensor(2.0),
    dt.ones(2, 3).requires_grad_(), 2, 2.5, True, dt.ones(2, 3).to(dt.float16), 1j, np.float32(3),
]  # fmt: skip


@pytest.mark.parametrize("prim", [el.add, el.mul, el.div, el.maximum])
def test_operands_of_all_kinds_give_what_the_gate_gives(prim):
    run = fast.binary(prim)
    for a, b in itertools.product(OPERANDS, OPERANDS):
        if not isinstance(a, dt.Tensor):
            continue
        found = []
        for call in (lambda a=a, b=b: run(a, b), lambda a=a, b=b: gate(prim, (a, b), {})):
            try:
                out = call()
                found.append((out.dtype, out.shape, out.tolist(), out.requires_grad))
            except Exception as error:
                found.append((type(error), str(error)))
        assert str(found[0]) == str(found[1]), (a, b)


def test_nodes_save_what_their_rules_read():
    a, b = dt.ones(2).requires_grad_(), dt.full((2,), 3.0)
    out = fast.binary(el.mul)(a, b)
    assert out._node.saved[1] is b and out._node.saved[0] is None
    out.sum().backward()
    assert a.grad.tolist() == [3.0, 3.0]
    with dt.no_grad():
        assert fast.binary(el.mul)(a, b)._node is None


def test_results_go_where_they_are_told():
    out = dt.empty(3)
    assert fast.unary(el.exp)(dt.zeros(3), out=out) is out and out.tolist() == [1.0] * 3


@pytest.mark.parametrize("dims", [None, (0,), (1,), (0, 1)])
def test_reductions(dims):
    x = dt.arange(6.0).reshape(2, 3).requires_grad_()
    found = fast.reducer(sum_)(x, dims, False)
    assert found.tolist() == x.detach().numpy().sum(dims).tolist()
    found.sum().backward()
    assert x.grad.tolist() == [[1.0] * 3] * 2
