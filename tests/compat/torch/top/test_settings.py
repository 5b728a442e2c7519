"""Switches and answers of the top level, types without elements, methods of PyTorch alone."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch import facade
from disttrain.compat.torch.top import kinds, names, settings
from disttrain.errors import DeviceError, DTypeError

TOP = settings.names()


def test_autocast_is_switched_without_a_block():
    w, x = dt.rand(2, 2), dt.rand(2, 2)
    assert (x @ w).dtype is dt.float32
    TOP["set_autocast_cpu_enabled"](True)
    try:
        assert (x @ w).dtype is dt.bfloat16
    finally:
        TOP["set_autocast_enabled"]("cpu", False)
    assert (x @ w).dtype is dt.float32
    TOP["set_autocast_cache_enabled"](False)
    assert not TOP["is_autocast_cache_enabled"]() and not dt.autocast("cpu")._cache_enabled
    TOP["set_autocast_cache_enabled"](True)
    TOP["clear_autocast_cache"]()
    assert TOP["autocast_increment_nesting"]() == 1 and TOP["autocast_decrement_nesting"]() == 0
    assert not TOP["is_autocast_xla_enabled"]()
    with pytest.raises(ValueError, match="no ipu devices"):
        TOP["set_autocast_ipu_enabled"](True)


def test_small_answers():
    assert TOP["wait"](TOP["fork"](lambda a, b: a + b, 1, b=2)) == 3
    assert TOP["get_file_path"]("nn").endswith("disttrain/nn")
    assert not TOP["is_warn_always_enabled"]() and TOP["thread_safe_generator"]() is None

    class Named:
        name = TOP["classproperty"](lambda cls: cls.__name__)

    assert Named.name == "Named"


def test_streams_and_events_of_the_cpu_are_always_done():
    stream, event = facade.Stream(), facade.Event("cpu")
    with stream:
        event.record(stream)
    assert stream.query() and event.query() and stream == facade.Stream("cpu")
    assert stream.record_event(event) is event and event.elapsed_time(event) == 0.0
    assert stream.device.type == event.device.type == "cpu"


def test_types_without_elements():
    found = kinds.names()
    assert found["int3"].is_signed and not found["uint3"].is_signed
    assert found["complex32"].is_complex and found["complex32"].itemsize == 4
    with pytest.raises(DTypeError, match="has no elements"):
        dt.zeros(2, dtype=found["bits8"])


def test_methods_of_pytorch_alone():
    had = {name for name in names._METHODS if name in dt.Tensor.__dict__}
    names.attach()
    try:
        x = dt.tensor([-1.0, 0.1])
        assert x.hardshrink().tolist() == [-1.0, 0.0] and not x.is_distributed()
        assert x.prelu(dt.tensor([0.5]))[0] == -0.5
        with pytest.raises(DeviceError, match="no xpu devices"):
            x.xpu()
    finally:
        for name in names._METHODS.keys() - had:
            delattr(dt.Tensor, name)
