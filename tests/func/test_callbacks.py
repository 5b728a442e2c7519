"""Functions of the host inside programs."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import func
from disttrain.func.callbacks import Callback
from disttrain.func.staging import stage


def square(seen, **settings):
    def fn(results, x):
        seen.append(x.shape)
        return [x**2]

    return Callback("square", fn, [((), np.float32)], **settings)


def test_each_run_calls():
    seen = []
    prim = square(seen)
    body = stage(lambda x: list(prim(x)), [((), np.float32)]).body
    assert seen == []
    for v in (2.0, 3.0):
        assert body.run()([np.float32(v)])[0] == v**2
    assert len(seen) == 2


def test_ways_over_a_batch():
    x = dt.tensor([1.0, 2.0])
    for method, shapes in (("sequential", [(), ()]), ("expand_dims", [(2,)])):
        seen = []
        prim = square(seen, method=method)
        assert func.vmap(lambda v, prim=prim: prim(v)[0])(x).tolist() == [1.0, 4.0]
        assert seen == shapes
    with pytest.raises(ValueError, match="no way to be called"):
        func.vmap(lambda v: square([])(v)[0])(x)


def test_derivatives_are_refused():
    prim = square([], no_derivative=ValueError("none"))
    with pytest.raises(ValueError, match="none"):
        func.grad(lambda x: prim(x)[0])(dt.tensor(1.0))
