"""Conversion of modules in place: types, devices, memory, modes; parameters stay who they are."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn, optim
from disttrain.core.types import dtypes
from disttrain.errors import (
    DeviceError,
    DTypeError,
)


def tensor(*shape, value=1.0):
    return core.wrap(np.full(shape, value, np.float32))


class Scale(nn.Module):
    """One parameter, one buffer, one buffer that is not saved."""

    def __init__(self, value=2.0):
        super().__init__()
        self.weight = nn.Parameter(tensor(3, value=value))
        self.register_buffer("seen", tensor(1, value=0.0))
        self.register_buffer("scratch", tensor(2), persistent=False)

    def forward(self, x, shift=0.0):
        return x * self.weight + shift


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scale()
        self.second = Scale(3.0)
        self.register_module("absent", None)

    def forward(self, x):
        return self.second(self.first(x))


def names(pairs):
    return [name for name, _ in pairs]


def test_modes_and_apply():
    m = Pair()
    assert m.training and m.eval() is m
    assert not m.first.training
    m.train()
    assert m.second.training
    with pytest.raises(ValueError, match="expected to be boolean"):
        m.train("yes")
    seen = []
    assert m.apply(seen.append) is m
    assert seen == [m.first, m.second, m]


def test_requires_grad_and_zero_grad():
    m = Pair()
    m(tensor(3)).sum().backward()
    assert m.first.weight.grad.tolist() == [3.0] * 3
    m.zero_grad(set_to_none=False)
    assert m.first.weight.grad.tolist() == [0.0] * 3
    m.zero_grad()
    assert m.first.weight.grad is None
    m.requires_grad_(False)
    assert not any(p.requires_grad for p in m.parameters())


def test_conversion_keeps_parameters_and_converts_gradients():
    m = Pair()
    kept = m.first.weight
    m(tensor(3)).sum().backward()
    m.register_buffer("count", core.wrap(np.arange(2)))
    assert m.double() is m
    assert m.first.weight is kept and kept.dtype is dtypes.float64
    assert kept.grad.dtype is dtypes.float64
    assert m.count.dtype is dtypes.int64 and m.first.seen.dtype is dtypes.float64
    m(tensor(3).double()).sum().backward()
    assert kept.grad.tolist() == [6.0] * 3
    for convert, kind in ((m.half, dtypes.float16), (m.bfloat16, dtypes.bfloat16),
                          (m.float, dtypes.float32)):  # fmt: skip
        convert()
        assert kept.dtype is kind
    assert m.type(dtypes.float64).count.dtype is dtypes.float64


def test_to_takes_every_form():
    m = Scale()
    assert m.to(dtypes.float64).weight.dtype is dtypes.float64
    assert m.to(tensor(1)).weight.dtype is dtypes.float32
    assert m.to("cpu", dtypes.float64).weight.dtype is dtypes.float64
    assert m.to(device="cpu", dtype=dtypes.float32, non_blocking=True).weight.is_cpu
    assert m.cpu() is m
    with pytest.raises(DTypeError, match="floating-point or"):
        m.to(dtypes.int64)
    with pytest.raises(TypeError, match="unknown argument 'devise'"):
        m.to(devise="cpu")
    with pytest.raises(TypeError, match="needed a device"):
        m.to(3.5)
    with pytest.raises(DeviceError):
        m.to("tpu")


def test_meta_and_back():
    m = Pair().to("meta")
    assert m.first.weight.is_meta and m.first.weight.requires_grad
    with pytest.raises(DeviceError, match="to_empty"):
        m.to("cpu")
    m.to_empty(device="cpu")
    assert m.first.weight.is_cpu and tuple(m.first.weight.shape) == (3,)
    with core.device("meta"):
        big = nn.Linear(10**6, 10**6)
    assert big.weight.is_meta and big.bias.is_meta
    assert nn.Linear(10**6, 10**6, device="meta").weight.is_meta


def test_shared_parameters_stay_shared_and_the_optimizer_keeps_its_own():
    m = Pair()
    m.second.weight = m.first.weight
    opt = optim.SGD(m.parameters(), lr=1.0)
    m.double()
    assert m.second.weight is m.first.weight and m.first.weight.dtype is dtypes.float64
    m(tensor(3).double()).sum().backward()
    before = m.first.weight.tolist()
    opt.step()
    assert m.first.weight.tolist() != before


def test_complex_and_whole_numbers_are_left_by_casts_of_floats():
    m = Scale()
    m.register_buffer("wave", core.wrap(np.ones(2, np.complex64)))
    m.register_buffer("count", core.wrap(np.arange(2)))
    m.half()
    assert m.wave.dtype is dtypes.complex64 and m.count.dtype is dtypes.int64
    m.to(dtypes.complex128)
    assert m.weight.dtype is m.wave.dtype is dtypes.complex128 and m.count.dtype is dtypes.int64


def test_what_is_there_already_is_not_copied():
    m = Scale()
    memory = m.weight.data_ptr(), m.seen.data_ptr()
    m.to("cpu", dtypes.float32).float()
    assert (m.weight.data_ptr(), m.seen.data_ptr()) == memory


def test_a_memory_format_is_for_pictures_alone():
    m = nn.Conv2d(3, 4, 2).to(memory_format=dt.channels_last)
    assert m.weight.is_contiguous(memory_format=dt.channels_last)
    assert m.bias.is_contiguous() and not m.weight.is_contiguous()


def test_uninitialised_parameters_keep_the_type_for_later():
    m = nn.LazyLinear(2)
    m.double()
    assert m(tensor(1, 3).double()).dtype is dtypes.float64
    with pytest.raises(DeviceError, match="run one batch through the module first"):
        nn.LazyLinear(2).share_memory()


def test_to_empty_may_stop_at_the_module_itself():
    m = Pair()
    m.own = nn.Parameter(tensor(2))
    kept = m.first.weight.data_ptr(), m.own.data_ptr()
    m.to_empty(device="cpu", recurse=False)
    assert m.first.weight.data_ptr() == kept[0] and m.own.data_ptr() != kept[1]
    assert m.own.requires_grad and m.own.shape == (2,)


def test_memory_of_modules_can_be_shared():
    m = Pair().share_memory()
    assert all(t.is_shared() for t in (*m.parameters(), *m.buffers()))
