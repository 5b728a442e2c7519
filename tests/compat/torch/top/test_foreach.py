"""``torch._foreach_*``: one operation on each tensor of a list."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.compat.torch.top import foreach
from disttrain.errors import ShapeError

pytestmark = pytest.mark.simulated


NAMES = foreach.names()


def lists():
    return [dt.tensor([1.0, 4.0]), dt.tensor([[9.0]])]


def call(name, *args, **options):
    return NAMES[f"_foreach_{name}"](*args, **options)


@pytest.mark.parametrize("name", foreach._UNARY)
def test_of_each_tensor_as_of_it_alone(name):
    given = [dt.tensor([0.25, 0.5]), dt.tensor([0.75], dtype=dt.float64)]
    want = [getattr(t, name)() for t in given]
    found = call(name, given)
    assert isinstance(found, tuple) and call(f"{name}_", given) is None
    for made, written, w in zip(found, given, want, strict=True):
        assert made.dtype is w.dtype and made.tolist() == w.tolist() == written.tolist()


@pytest.mark.parametrize("name", [n for n in foreach._BINARY if n != "lerp"])
def test_numbers_and_lists_beside(name):
    plain = {"maximum": np.maximum, "minimum": np.minimum, "clamp_min": np.maximum,
             "clamp_max": np.minimum, "add": np.add, "sub": np.subtract, "mul": np.multiply,
             "div": np.divide, "pow": np.power}[name]  # fmt: skip
    for other, each in ((2.0, (2.0, 2.0)), ([3.0, 0.5], (3.0, 0.5)), (lists(), lists())):
        found, target = call(name, lists(), other), lists()
        call(f"{name}_", target, other)
        for made, written, t, o in zip(found, target, lists(), each, strict=True):
            want = plain(t.numpy(), o if isinstance(o, float) else o.numpy())
            np.testing.assert_allclose(made.numpy(), want, rtol=1e-6)
            np.testing.assert_allclose(written.numpy(), want, rtol=1e-6)


def test_a_number_to_the_power_of_each():
    assert [t.tolist() for t in call("pow", 2.0, lists())] == [[2.0, 16.0], [[512.0]]]


def test_options_go_along():
    found = call("add", lists(), lists(), alpha=10.0)
    assert found[0].tolist() == [11.0, 44.0]
    mixed = call("lerp", lists(), [t * 3 for t in lists()], 0.5)
    assert mixed[0].tolist() == [2.0, 8.0]


def test_products_of_three():
    ones = [dt.ones(2), dt.ones(1, 1)]
    for value in (2.0, [2.0, 3.0], dt.tensor([2.0, 3.0])):
        found = call("addcmul", ones, lists(), lists(), value)
        factor = 2.0 if isinstance(value, float) else 3.0
        assert found[0].tolist() == [3.0, 33.0] and found[1].item() == 1 + factor * 81
    target = lists()
    assert call("addcdiv_", target, lists(), lists(), value=2.0) is None
    assert target[0].tolist() == [3.0, 6.0]
    assert call("addcmul", ones, lists(), lists(), scalars=[1.0, 0.0])[1].item() == 1.0


def test_norms_copies_and_zeros():
    assert [round(t.item(), 5) for t in call("norm", lists())] == [4.12311, 9.0]
    assert call("norm", lists(), 1, dtype=dt.float64)[0].dtype is dt.float64
    target = [dt.zeros(2), dt.zeros(1, 1)]
    call("copy_", target, lists(), True)
    assert target[0].tolist() == [1.0, 4.0] and call("max", lists())[1].item() == 9.0
    call("zero_", target)
    assert target[1].tolist() == [[0.0]]


def test_leaves_may_be_written_to_where_programs_step():
    leaf = dt.ones(2, requires_grad=True)
    with dt.no_grad():
        call("mul_", [leaf], 3.0)
    assert leaf.tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("add", [dt.ones(1)], [dt.ones(1)] * 2), "same number of tensors, got 1 and 2"),
        (("add", [], 1.0), "_foreach_add: Tensor list must have at least one tensor"),
        (("addcmul", [], [], []), "must have at least one tensor"),
        (("addcmul", [dt.ones(1)], [], []), "same number of tensors, got 1 and 0"),
    ],
)
def test_lists_that_do_not_fit(args, told):
    with pytest.raises(ShapeError, match=told):
        call(*args)
