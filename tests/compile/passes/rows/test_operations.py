"""Which operations run in a joint kernel, and what they are given."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes.rows.operations import numbers_of, operation_of
from disttrain.nn.functional import layer_norm, log_softmax, rms_norm, softmax


def found(fn, *args):
    graph = capture(fn)(*args)[1]
    return [operation_of(ins, graph.metas) for ins in graph.instructions]


@pytest.mark.parametrize("fn", [softmax, log_softmax])
def test_softmax_of_the_last_dimension(fn):
    x = dt.randn(3, 4)
    (operation,) = found(lambda x: fn(x, -1), x)
    assert set(operation.given) == {"x"} and set(operation.made) == {"out"}
    assert found(lambda x: fn(x, 0), x) == [None]
    assert found(lambda x: fn(x, -1), dt.randn(4)) == [None]


def test_norms_and_their_numbers():
    x, w, b = dt.randn(3, 4), dt.randn(4), dt.randn(4)
    (operation,) = found(lambda x: layer_norm(x, (4,), w, b, 0.5), x)
    assert set(operation.given) == {"x", "weight", "bias"}
    assert numbers_of(operation, 4) == {"eps": 0.5, "share": 0.25}
    (operation,) = found(lambda x: rms_norm(x, (4,), w), x)
    assert set(operation.given) == {"x", "weight"} and set(operation.made) == {"out", "rstds"}


def test_gradients():
    x, w, b = (dt.randn(*s, requires_grad=True) for s in ((3, 4), (4,), (4,)))
    g = dt.randn(3, 4)

    def fn(x, w, b):
        return dt.autograd.grad(layer_norm(x, (4,), w, b), (x, w, b), g)

    backward = [o for o in found(fn, x, w, b) if o is not None and o.sums]
    assert [set(o.sums) for o in backward] == [{"dweight", "dbias"}]
    assert set(backward[0].given) == {"g", "x", "mean", "rstd", "weight"}
