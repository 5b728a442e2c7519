"""Values inside transforms: what they show of themselves."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.core.tracer import Tracer
from disttrain.errors import CaptureError
from disttrain.func import grad, vmap


def inside(transform, look):
    """What ``look`` says of a value inside a transform."""
    found = []
    transform(lambda x: (found.append(look(x)), (x * x).sum())[1])(dt.arange(6.0).reshape(2, 3))
    return found[0]


@pytest.mark.parametrize(("transform", "wanted"), [(grad, (2, 3)), (vmap, (3,))])
def test_a_value_has_the_shape_of_its_level(transform, wanted):
    shape, ndim, dtype = inside(transform, lambda x: (tuple(x.shape), x.ndim, x.dtype))
    assert (shape, ndim, dtype) == (wanted, len(wanted), dt.float32)
    assert inside(vmap, lambda x: isinstance(x, Tracer))


def test_below_all_levels_is_a_plain_tensor():
    plain = inside(lambda f: grad(lambda x: vmap(f)(x).sum()), lambda x: x.plain())
    assert type(plain) is dt.Tensor and plain.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_detached_values_have_no_gradient():
    def fn(x):
        return (x * x.detach()).sum()

    assert grad(fn)(dt.tensor([3.0])).tolist() == [3.0]


def test_a_value_that_left_its_transform_is_refused():
    kept = []
    vmap(lambda x: (kept.append(x), x)[1])(dt.ones(2))
    with pytest.raises(CaptureError, match="after the transform returned"):
        kept[0] + 1
