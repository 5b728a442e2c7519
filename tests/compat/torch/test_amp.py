"""Mixed precision by PyTorch's names: of which device each form is, and what the top level says."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch import amp

pytestmark = pytest.mark.simulated

MODULES = amp.modules()
TOP = amp.settings()


def test_each_module_has_its_device():
    with MODULES["torch.cpu.amp"].autocast():
        assert (dt.ones(2, 2) @ dt.ones(2, 2)).dtype is dt.bfloat16
    with MODULES["torch.cpu.amp"].autocast(enabled=False):
        assert (dt.ones(2, 2) @ dt.ones(2, 2)).dtype is dt.float32
    scaler = MODULES["torch.cpu.amp"].GradScaler(init_scale=4.0)
    assert scaler.is_enabled() and scaler.scale(dt.ones(1)).tolist() == [4.0]


def test_on_a_device(double):
    x = dt.ones(2, 2, device="cuda")
    with MODULES["torch.cuda.amp"].autocast(dtype=dt.bfloat16):
        assert (x @ x).dtype is dt.bfloat16
    assert MODULES["torch.cuda.amp"].GradScaler(8.0, 4.0).get_growth_factor() == 4.0


def test_without_a_device_a_scaler_says_so():
    if not dt.cuda.is_available():
        with pytest.warns(UserWarning, match="GradScaler: no cuda device here"):
            assert not MODULES["torch.cuda.amp"].GradScaler().is_enabled()


def test_the_top_level_tells_of_both_kinds():
    assert not TOP["is_autocast_cpu_enabled"]() and not TOP["is_autocast_enabled"]()
    with TOP["autocast"]("cpu", dt.bfloat16):
        assert TOP["is_autocast_cpu_enabled"]() and not TOP["is_autocast_enabled"]()
        assert TOP["get_autocast_cpu_dtype"]() is dt.bfloat16
    before = TOP["get_autocast_gpu_dtype"]()
    TOP["set_autocast_gpu_dtype"](dt.bfloat16)
    try:
        assert TOP["get_autocast_dtype"]("cuda") is TOP["get_autocast_gpu_dtype"]() is dt.bfloat16
    finally:
        TOP["set_autocast_gpu_dtype"](before)


def test_modules_show_the_same_objects():
    assert MODULES["torch.amp"].autocast is MODULES["torch.amp.autocast_mode"].autocast
    assert MODULES["torch.amp.grad_scaler"].GradScaler is dt.amp.GradScaler
    assert issubclass(MODULES["torch.cuda.amp"].autocast, MODULES["torch.amp"].autocast)
