"""``dt.cuda`` on the device double: devices, and what is said where there is none."""

import subprocess
import sys

import pytest

import disttrain as dt
from disttrain import cuda
from disttrain.errors import DeviceError


def test_without_a_device_questions_answer_and_work_says_what_is_missing():
    assert not cuda.is_available() and cuda.device_count() == 0 and not cuda.is_initialized()
    assert cuda.memory_allocated() == cuda.max_memory_reserved() == 0 and cuda.memory_stats() == {}
    assert cuda.get_rng_state_all() == [] and cuda.get_arch_list() == []
    assert not cuda.is_bf16_supported() and not cuda.is_tf32_supported()
    cuda.manual_seed(1), cuda.manual_seed_all(1), cuda.empty_cache(), cuda.ipc_collect()
    for needs in (cuda.synchronize, cuda.Stream, cuda.Event, cuda.current_device, cuda.init):
        with pytest.raises(DeviceError, match="driver"):
            needs()


def test_importing_it_loads_nothing_big():
    program = (
        "import sys, disttrain as dt; dt.cuda.is_available(); dt.cuda.manual_seed(3)\n"
        "assert not {m.split('.')[0] for m in sys.modules} & {'cupy', 'llvmlite', 'nccl'}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


def test_devices(double):
    assert cuda.is_available() and cuda.device_count() == 2 and cuda.current_device() == 0
    with cuda.device(1):
        assert cuda.current_device() == 1 and dt.ones(1, device="cuda").device == "cuda:1"
        with cuda.device(None), cuda.device(-1):
            assert cuda.current_device() == 1
        with cuda.device_of(dt.ones(1, device="cuda:0")):
            assert cuda.current_device() == 0
        with cuda.device_of(dt.ones(1)):
            assert cuda.current_device() == 1
    assert cuda.current_device() == 0
    cuda.set_device("cuda:1")
    assert cuda.current_device() == 1
    cuda.set_device(dt.device("cuda", 0)), cuda.set_device(-1)
    assert cuda.current_device() == 0
    assert cuda.get_device_name(1) == "device double" and cuda.get_device_capability() == (9, 0)
    assert cuda.get_device_properties("cuda").total_memory > 0 and cuda.is_bf16_supported(False)
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        cuda.synchronize("cpu")
    with pytest.raises(DeviceError, match="cuda:2: invalid device ordinal"):
        cuda.set_device(2)
