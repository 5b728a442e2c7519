"""``torch.cuda``, ``torch.accelerator`` and ``torch.backends`` of the stand-in, in this process."""

import pytest

import disttrain as dt
from disttrain.backends.device import precision
from disttrain.compat.publish import MissingName
from disttrain.compat.torch import build
from disttrain.errors import ConfigError, DeviceError


@pytest.fixture(scope="module")
def torch():
    modules = build()
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent:
            vars(modules[parent]).setdefault(child, module)
    return modules["torch"]


def test_programs_go_on_without_a_device(torch):
    cuda = torch.cuda
    assert not cuda.is_available() and cuda.device_count() == 0
    with cuda.stream(cuda.Stream()), cuda.device(0):
        cuda.Event(enable_timing=True).record()
        cuda.synchronize()
    cuda.manual_seed_all(3), cuda.empty_cache(), cuda.memory.reset_peak_memory_stats()
    assert cuda.random.get_rng_state_all() == [] and cuda.memory_allocated() == 0
    assert not isinstance(torch.ones(1), cuda.FloatTensor)
    assert torch.accelerator.current_accelerator() is None
    assert not torch.accelerator.is_available()
    with pytest.raises(DeviceError, match="driver"):
        cuda.current_device()
    with pytest.raises(MissingName, match=r"torch\.cuda\.gds"):
        cuda.gds
    assert {"Stream", "is_available", "FloatTensor"} <= set(dir(cuda))


def test_programs_look_for_other_devices_and_ways(torch):
    for kind in ("mps", "mtia", "xpu"):
        found = getattr(torch, kind)
        assert not found.is_available() and found.device_count() == 0
    assert torch.OutOfMemoryError is torch.cuda.OutOfMemoryError
    attention, switches = torch.nn.attention, torch.backends.cuda
    with attention.sdpa_kernel([attention.SDPBackend.MATH]):
        assert switches.math_sdp_enabled() and not switches.flash_sdp_enabled()
        x = torch.ones(1, 1, 2, 4)
        assert torch.nn.functional.scaled_dot_product_attention(x, x, x).tolist() == x.tolist()
    assert switches.flash_sdp_enabled()
    with pytest.raises(AssertionError, match="SDPBackend"), attention.sdpa_kernel(["flash"]):
        pass


def test_with_a_device(torch, double):
    cuda = torch.cuda
    assert cuda.is_available() and str(torch.accelerator.current_accelerator()) == "cuda"
    side = cuda.Stream()
    assert isinstance(side, cuda.Stream) and cuda.current_stream() != side
    x = cuda.FloatTensor([1, 2])
    assert isinstance(x, cuda.FloatTensor) and not isinstance(x, cuda.LongTensor) and x.is_cuda
    assert cuda.get_device_properties(0).name == "device double"
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_device_index() == 1
    with cuda.nvtx.range("a"):
        assert cuda.comm.reduce_add([x, x.to("cuda:1")], 1).tolist() == [2.0, 4.0]


def test_tensors_over_the_devices_of_one_process(double):
    comm, x = dt.cuda.comm, dt.arange(5.0, device="cuda")
    assert [t.device.index for t in comm.broadcast(x, [1, 0])] == [1, 0]
    pieces = comm.scatter(x)
    assert [p.tolist() for p in pieces] == [[0.0, 1.0, 2.0], [3.0, 4.0]]
    assert comm.gather(pieces, destination="cpu").tolist() == x.tolist()
    assert comm.gather(pieces, destination=1).device == "cuda:1"
    whole = comm.broadcast_coalesced([x, x + 1], [0, 1])
    assert comm.reduce_add_coalesced(whole)[1].tolist() == [2.0, 4.0, 6.0, 8.0, 10.0]
    with pytest.raises(RuntimeError, match="Exactly one of"):
        comm.broadcast(x)


def test_settings_of_products(torch):
    matmul = torch.backends.cuda.matmul
    assert not matmul.allow_tf32 and torch.get_float32_matmul_precision() == "highest"
    try:
        matmul.allow_tf32 = True
        assert torch.get_float32_matmul_precision() == "high" and matmul.fp32_precision == "tf32"
        torch.set_float32_matmul_precision("highest")
        assert not matmul.allow_tf32
        matmul.allow_bf16_reduced_precision_reduction = False
        assert matmul.allow_fp16_reduced_precision_reduction
        assert not matmul.allow_bf16_reduced_precision_reduction
    finally:
        matmul.allow_bf16_reduced_precision_reduction = True
        dt.set_float32_matmul_precision("highest")
    torch.backends.cuda.enable_flash_sdp(False)
    assert not torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()
    torch.backends.cudnn.benchmark = True


def test_modules_of_devices(torch):
    with pytest.raises(RuntimeError, match="Invalid device"):
        torch.get_device_module("meta")


def test_determinism_is_kept_as_it_was_set(torch):
    assert not torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.get_deterministic_debug_mode() == 1
        torch.set_deterministic_debug_mode("error")
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.get_deterministic_debug_mode() == 2
        with pytest.raises(ConfigError, match="needed 0, 1, 2"):
            torch.set_deterministic_debug_mode("sometimes")
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.get_deterministic_debug_mode() == 0


def test_settings_of_convolutions(torch):
    cudnn = torch.backends.cudnn
    assert cudnn.enabled and cudnn.allow_tf32 and cudnn.deterministic
    cudnn.benchmark = False
    with cudnn.flags(enabled=True, benchmark=True, deterministic=False, fp32_precision="ieee"):
        assert cudnn.benchmark and not cudnn.deterministic and not cudnn.allow_tf32
        assert not precision.convolution_setting("allow_tf32")
    assert cudnn.allow_tf32 and not cudnn.benchmark
    assert precision.convolution_setting("deterministic")
    with pytest.raises(ConfigError, match="benchmark_limit"):
        cudnn.benchmark_limit = -1
    assert cudnn.is_available() == (cudnn.version() is not None)
