"""Old constructors: sizes, data, types for isinstance, and the default type they name."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch.top import legacy

pytestmark = pytest.mark.simulated

OLD = legacy.classes()


@pytest.mark.parametrize("name", legacy.KINDS)
def test_sizes_and_data_in_the_type_of_the_name(name):
    made = OLD[name](2, 3)
    assert made.shape == (2, 3) and made.dtype is legacy.KINDS[name]
    data = OLD[name]([1, 0])
    assert data.tolist() == [1, 0] and isinstance(data, OLD[name]) and isinstance(data, dt.Tensor)
    others = [n for n in OLD if isinstance(data, OLD[n])]
    assert others == [name] and not isinstance([1], OLD[name])


def test_on_the_device(double):
    there = legacy.cuda_classes()["FloatTensor"]
    made = there([1.0])
    assert made.is_cuda and isinstance(made, there) and isinstance(made, OLD["FloatTensor"])
    assert not isinstance(dt.ones(1), there) and not isinstance(made.double(), there)


def test_every_tensor_is_a_variable():
    variable = legacy.variable()
    t = dt.ones(2)
    v = variable(t, requires_grad=True)
    assert v.requires_grad and isinstance(v, variable) and isinstance(t, variable)
    assert not isinstance(1.0, variable) and not variable(t, True, volatile=True).requires_grad


@pytest.mark.parametrize("kind", ["torch.DoubleTensor", "DoubleTensor", "class"])
def test_the_default_type_by_a_class_or_its_name(kind):
    before = dt.get_default_dtype()
    try:
        legacy.set_default_tensor_type(OLD["DoubleTensor"] if kind == "class" else kind)
        assert dt.get_default_dtype() is dt.float64 and dt.ones(1).is_cpu
    finally:
        dt.set_default_device(None)
        dt.set_default_dtype(before)


def test_the_default_device_comes_with_the_class(double):
    before = dt.get_default_dtype()
    try:
        legacy.set_default_tensor_type(legacy.cuda_classes()["FloatTensor"])
        assert dt.ones(1).is_cuda
        dt.set_default_device("cpu")
        legacy.set_default_tensor_type("torch.cuda.FloatTensor")
        assert dt.ones(1).is_cuda
    finally:
        dt.set_default_device(None)
        dt.set_default_dtype(before)


def test_a_function_that_may_work_in_place():
    assert legacy.InplaceFunction(True).inplace and not legacy.InplaceFunction().inplace
