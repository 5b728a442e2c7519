"""Places by a known number, pieces apart, slices put back, orders of memory, numbers in parts."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DTypeError


def test_places_of_a_known_number():
    x = dt.tensor([[1, 0], [2, 3]])
    assert x.nonzero_static(size=2).tolist() == [[0, 0], [1, 0]]
    assert dt.nonzero_static(x, size=4, fill_value=-7).tolist()[2:] == [[1, 1], [-7, -7]]
    with pytest.raises(ConfigError, match="size=-1"):
        x.nonzero_static(size=-1)


def test_pieces_may_be_written_to_and_slices_put_back():
    x = dt.arange(12.0, requires_grad=True).reshape(3, 4)
    first, rest = x.unsafe_split_with_sizes([1, 2])
    first.add_(1)
    assert rest.shape == (2, 4) and first[0, 0] == 1
    y = dt.arange(12.0).reshape(3, 4)
    assert dt.equal(dt.slice_inverse(y[:, 1:3], y, 1, 1, 3), y)
    assert dt.equal(y[-2:].slice_inverse(y, 0, -2), y)


def test_orders_of_memory():
    x = dt.rand(2, 3, 4, 5)
    assert x.dim_order() == (0, 1, 2, 3)
    assert x.contiguous(memory_format=dt.channels_last).dim_order() == (0, 2, 3, 1)
    assert x.permute(3, 0, 1, 2).dim_order(ambiguity_check=True) == (1, 2, 3, 0)
    with pytest.raises(ConfigError, match="ambiguous"):
        dt.rand(2, 1, 3).dim_order(ambiguity_check=True)
    assert x.is_set_to(x.view(2, 3, 4, 5)) and not x.is_set_to(x[:1]) and not x.is_set_to(x.clone())
    assert x.const_data_ptr() == x.data_ptr() and x.grad_dtype is dt.float32
    made = x.new_empty_strided((2, 3), (1, 2), dtype=dt.int8)
    assert made.stride() == (1, 2) and made.dtype is dt.int8


def test_the_same_memory_as_another_class_and_values_that_are_loaded():
    class Mine(dt.Tensor):
        pass

    x = dt.ones(2, requires_grad=True)
    y = (x * 2).as_subclass(Mine)
    assert type(y) is Mine and y.grad_fn is not None
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    own = dt.zeros(2)
    assert own.module_load(dt.ones(2)).tolist() == own.tolist() == [1.0, 1.0]
    other = dt.ones(2)
    assert own.module_load(other, assign=True).data_ptr() == other.data_ptr()


@pytest.mark.parametrize("kind", [dt.float16, dt.bfloat16, dt.float32, dt.float64])
def test_numbers_in_parts(kind):
    x = dt.tensor([0.0, 1.0, -3.0, 5.5, np.inf, np.nan], dtype=kind, requires_grad=True)
    mantissa, exponent = x.frexp()
    assert mantissa.dtype is kind and exponent.dtype is dt.int32
    assert exponent.tolist() == [0, 1, 2, 3, 0, 0]
    assert mantissa[:4].tolist() == [0.0, 0.5, -0.75, 0.6875]
    mantissa[:4].sum().backward()
    assert x.grad[:4].tolist() == [1.0, 0.5, 0.25, 0.125]
    with pytest.raises(DTypeError, match="only supports floating-point"):
        dt.frexp(dt.tensor([1]))
