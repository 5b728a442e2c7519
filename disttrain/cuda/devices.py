"""``torch.cuda``'s questions about devices, and the calling thread's current one."""

from __future__ import annotations

from typing import Any

from ..backends.cuda import nvrtc
from ..core.tensor import Tensor
from ..core.types.device import device as Device
from ..errors import DeviceError
from .which import device_count, here, index_of, is_available


def current_device() -> int:
    """The number of the calling thread's device."""
    return here().current()


def set_device(device: object) -> None:
    """Make this the calling thread's device; a negative number changes nothing."""
    if isinstance(device, int) and device < 0:
        return
    here().use(index_of(device))


class device:  # noqa: N801  (the field's spelling)
    """Inside the block ``device`` (a number, a device, None: no change) is the thread's."""

    def __init__(self, device: Any) -> None:
        negative = isinstance(device, int) and device < 0
        self.idx = -1 if device is None or negative else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            platform = here()
            self.prev_idx = platform.current()
            if self.prev_idx != self.idx:
                platform.sided = True
                platform.use(self.idx)

    def __exit__(self, *exc: object) -> None:
        if self.prev_idx >= 0:
            here().use(self.prev_idx)


class device_of(device):  # noqa: N801
    """Inside the block the device of the tensor ``obj`` is the thread's; no change where it is not
    on a CUDA device."""

    def __init__(self, obj: Tensor) -> None:
        super().__init__(obj.device.index if obj.is_cuda else None)


def get_device_properties(device: object = None) -> Any:
    """``name``, ``major``, ``minor``, ``total_memory``, ``multi_processor_count`` ..."""
    return here().properties(index_of(device))


def get_device_name(device: object = None) -> str:
    """What the maker calls it."""
    return get_device_properties(device).name


def get_device_capability(device: object = None) -> tuple[int, int]:
    """The generation: (9, 0) is Hopper."""
    found = get_device_properties(device)
    return found.major, found.minor


def get_arch_list() -> list[str]:
    """The generations that kernels can be compiled for here; [] where there is no device."""
    if not is_available():
        return []
    return [f"sm_{number}" for number in nvrtc.architectures()]


def get_gencode_flags() -> str:
    """The same, as the CUDA compiler's arguments."""
    names = [name.partition("_")[2] for name in get_arch_list()]
    return " ".join(f"-gencode compute=compute_{n},code=sm_{n}" for n in names)


def can_device_access_peer(device: object, peer_device: object) -> bool:
    """Whether one device reads the other's memory directly."""
    index, other = index_of(device, False), index_of(peer_device, False)
    return here().can_access(index, other)


def synchronize(device: object = None) -> None:
    """Wait until all work of a device is done."""
    here().synchronize(index_of(device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be computed with here; without emulation: by the device itself."""
    if not is_available():
        return False
    return including_emulation or get_device_capability()[0] >= 8


def is_tf32_supported() -> bool:
    """Whether the device multiplies float32 in TF32 (Ampere and later)."""
    return is_available() and get_device_capability()[0] >= 8


def check_error(res: int) -> None:
    """Raise where a call of CUDA's returned something else than 0."""
    if res != 0:
        raise DeviceError(f"CUDA error {res}")


def torch_device(index: int) -> Device:
    return Device("cuda", index)


__all__ = [
    "can_device_access_peer", "check_error", "current_device", "device", "device_count",
    "device_of", "get_arch_list", "get_device_capability", "get_device_name",
    "get_device_properties", "get_gencode_flags", "is_available", "is_bf16_supported",
    "is_tf32_supported", "set_device", "synchronize",
]  # fmt: skip
