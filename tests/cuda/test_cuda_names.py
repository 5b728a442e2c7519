"""Which names of ``torch.cuda`` and its modules there are, and why the rest is not."""

import pytest

import disttrain as dt
from disttrain.cuda import comm, graphs, memory, nvtx, streams

# Names that are missing, by the reason.
ABSENT = {
    "storages are typed and untyped ones of the host": (
        "BFloat16Storage BoolStorage ByteStorage CharStorage DoubleStorage FloatStorage "
        "HalfStorage IntStorage LongStorage ShortStorage ComplexFloatStorage ComplexDoubleStorage"
    ),
    "old types are made by the stand-in (compat/torch/legacy.py)": (
        "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor "
        "IntTensor LongTensor ShortTensor has_half has_magma sparse"
    ),
    "CuPy's pool gives out memory: no allocator of PyTorch's is there to be changed or asked": (
        "CUDAPluggableAllocator MemPool caching_allocator_alloc caching_allocator_delete "
        "caching_allocator_disabled caching_allocator_enable change_current_allocator "
        "get_per_process_memory_fraction host_memory_stats host_memory_stats_as_nested_dict "
        "memory_snapshot reset_accumulated_host_memory_stats reset_accumulated_memory_stats "
        "reset_peak_host_memory_stats use_mem_pool"
    ),
    "what NVML says of a device is disttrain doctor's": (
        "clock_rate list_gpu_processes memory_usage power_draw temperature utilization"
    ),
    "inner parts of PyTorch": (
        "CudaError DeferredCudaCallError cudaStatus cudart current_blas_handle "
        "current_solver_handle get_sync_debug_mode set_sync_debug_mode"
    ),
    "other libraries and compilers": "GreenContext jiterator nccl profiler tunable",
}


@pytest.mark.peer
def test_every_name_is_there_or_has_a_reason():
    torch = pytest.importorskip("torch")
    lacking = {n for n in torch.cuda.__all__ if not hasattr(dt.cuda, n)}
    assert lacking == {name for names in ABSENT.values() for name in names.split()}
    for ours, theirs in (
        (comm, torch.cuda.comm.__all__ if hasattr(torch.cuda, "comm") else []),
        (graphs, ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"]),
        (nvtx, ["range_push", "range_pop", "mark", "range"]),
        (dt.cuda.accelerator, ["is_available", "current_accelerator", "set_device_index"]),
    ):
        assert set(theirs) <= set(dir(ours))
    for own, other in ((streams.Stream, torch.cuda.Stream), (streams.Event, torch.cuda.Event)):
        public = {n for n in dir(other) if not n.startswith("_")}
        expected = public - {"from_ipc_handle", "event_id", "device_type", "is_capturing"}
        assert not {n for n in expected if n not in dir(own)}, (own, expected - set(dir(own)))


def test_the_names_of_memory_are_public():
    assert {n for n in memory.__all__ if not hasattr(dt.cuda, n)} == set()
