"""What a CUDA device is, under PyTorch's names."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

_MIB = 1 << 20


@dataclass(frozen=True)
class Properties:
    """Bytes, counts and kilohertz; 0 where this version of CUDA does not say."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    is_integrated: int
    is_multi_gpu_board: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    warp_size: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    memory_bus_width: int
    memory_clock_rate: int
    clock_rate: int
    pci_bus_id: int
    pci_device_id: int
    pci_domain_id: int
    uuid: Any

    @classmethod
    def of(cls, runtime: Any, index: int) -> Properties:
        """As CuPy's ``runtime`` tells them; some only as attributes since CUDA 13."""
        found = runtime.getDeviceProperties(index)
        values: dict[str, Any] = {}
        for field, (key, attribute) in _SOURCES.items():
            value = found.get(key)
            if value is None:
                code = getattr(runtime, attribute, None)
                value = 0 if code is None else runtime.deviceGetAttribute(code, index)
            values[field] = value
        name = found["name"]  # the UUID, too, ends where it has a zero, as CuPy gives it
        return cls(
            name=name.decode() if isinstance(name, bytes) else name,
            major=found["major"],
            minor=found["minor"],
            total_memory=found["totalGlobalMem"],
            uuid=uuid.UUID(bytes=bytes(found.get("uuid", b"")).ljust(16, b"\0")[:16]),
            **values,
        )

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // _MIB}MB, "
            f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size // _MIB}MB)"
        )


_SOURCES = {
    "multi_processor_count": ("multiProcessorCount", "cudaDevAttrMultiProcessorCount"),
    "is_integrated": ("integrated", "cudaDevAttrIntegrated"),
    "is_multi_gpu_board": ("isMultiGpuBoard", "cudaDevAttrIsMultiGpuBoard"),
    "max_threads_per_multi_processor": (
        "maxThreadsPerMultiProcessor",
        "cudaDevAttrMaxThreadsPerMultiProcessor",
    ),
    "max_threads_per_block": ("maxThreadsPerBlock", "cudaDevAttrMaxThreadsPerBlock"),
    "warp_size": ("warpSize", "cudaDevAttrWarpSize"),
    "regs_per_multiprocessor": (
        "regsPerMultiprocessor",
        "cudaDevAttrMaxRegistersPerMultiprocessor",
    ),
    "shared_memory_per_block": ("sharedMemPerBlock", "cudaDevAttrMaxSharedMemoryPerBlock"),
    "shared_memory_per_block_optin": (
        "sharedMemPerBlockOptin",
        "cudaDevAttrMaxSharedMemoryPerBlockOptin",
    ),
    "shared_memory_per_multiprocessor": (
        "sharedMemPerMultiprocessor",
        "cudaDevAttrMaxSharedMemoryPerMultiprocessor",
    ),
    "L2_cache_size": ("l2CacheSize", "cudaDevAttrL2CacheSize"),
    "memory_bus_width": ("memoryBusWidth", "cudaDevAttrGlobalMemoryBusWidth"),
    "memory_clock_rate": ("memoryClockRate", "cudaDevAttrMemoryClockRate"),
    "clock_rate": ("clockRate", "cudaDevAttrClockRate"),
    "pci_bus_id": ("pciBusID", "cudaDevAttrPciBusId"),
    "pci_device_id": ("pciDeviceID", "cudaDevAttrPciDeviceId"),
    "pci_domain_id": ("pciDomainID", "cudaDevAttrPciDomainId"),
}
