"""What a device's memory is used for, under PyTorch's names. Sizes are in bytes.

"Allocated" is what arrays have; "reserved" what this process has of the device, with what is kept
for later. Before CUDA has been used there is nothing to count, and nothing is started to say so.
"""

from __future__ import annotations

from typing import Any

from ..errors import OutOfMemoryError
from .which import here, index_of, started

_FIELDS = ("current", "peak", "allocated", "freed")


def _stats(device: int | None) -> dict[str, int]:
    return here().memory_stats(index_of(device)) if started() else {}


def memory_allocated(device: Any = None) -> int:
    """Bytes that arrays have now."""
    return _stats(device).get("allocated", 0)


def max_memory_allocated(device: Any = None) -> int:
    """The most that arrays had since the start, or since ``reset_peak_memory_stats``."""
    return _stats(device).get("peak_allocated", 0)


def memory_reserved(device: Any = None) -> int:
    """Bytes that this process has of the device."""
    return _stats(device).get("reserved", 0)


def max_memory_reserved(device: Any = None) -> int:
    """The most that it had since the start, or since ``reset_peak_memory_stats``."""
    return _stats(device).get("peak_reserved", 0)


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counts by PyTorch's names, such as ``allocated_bytes.all.peak``. All memory is in one pool,
    so there is no ``large_pool`` and no ``small_pool``."""
    found = _stats(device)
    if not found:
        return {}
    count, freed = found["allocations"], found.get("frees", 0)
    ever = found.get("ever_allocated", found["peak_allocated"])
    rows = {
        "allocation": (count - freed, count - freed, count, freed),
        "allocated_bytes": (
            found["allocated"], found["peak_allocated"], ever, ever - found["allocated"],
        ),
        "reserved_bytes": (
            found["reserved"], found["peak_reserved"], found["peak_reserved"],
            found["peak_reserved"] - found["reserved"],
        ),
    }  # fmt: skip
    names = {f"{k}.all.{f}": v for k, row in rows.items() for f, v in zip(_FIELDS, row)}
    more = {"num_alloc_retries": "retries", "num_ooms": "failures", "num_device_alloc": "segments"}
    return {**names, **{name: found.get(key, 0) for name, key in more.items()}}


def memory_stats_as_nested_dict(device: object = None) -> dict[str, Any]:
    """The same, as dictionaries in dictionaries."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def memory_summary(device: object = None, abbreviated: bool = False) -> str:
    """The same, as a table for people."""
    index = index_of(device)
    stats, free, total = memory_stats(index), *mem_get_info(index)
    line, rule = "|" + "-" * 75 + "|", "|" + "=" * 75 + "|"
    rows = [
        rule,
        f"|{f'CUDA memory summary, device {index}':^75}|",
        line,
        _halves(f"CUDA OOMs: {stats['num_ooms']}", f"retries: {stats['num_alloc_retries']}"),
        _halves(f"free: {_size(free)}", f"total: {_size(total)}"),
        rule,
        f"| {'Metric':<22}|" + "".join(f"{title:^12}|" for title in _TITLES),
    ]
    for key, title, show in (
        ("allocated_bytes", "Allocated memory", _size),
        ("reserved_bytes", "GPU reserved memory", _size),
        ("allocation", "Allocations", str),
    ):
        cells = "|".join(f"{show(stats[f'{key}.all.{f}']):>11} " for f in _FIELDS)
        rows += [line, f"| {title:<22}|{cells}|"]
    return "\n".join([*rows, rule]) + "\n"


_TITLES = ("Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")


def _halves(left: str, right: str) -> str:
    return f"|{left:^37}|{right:^37}|"


def _size(n: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 10240:
            return f"{n} {unit}"
        n //= 1024
    return f"{n} GiB"


def mem_get_info(device: object = None) -> tuple[int, int]:
    """Bytes of the device that are free, and all that it has, whoever uses them."""
    found = here().memory_stats(index_of(device))
    return found["free"], found["total"]


def device_memory_used(device: object = None) -> int:
    """Bytes of the device that are in use, whoever uses them."""
    free, total = mem_get_info(device)
    return total - free


def reset_peak_memory_stats(device: object = None) -> None:
    """Let the peaks be what is there now."""
    if started():
        here().reset_peak(index_of(device))


def reset_max_memory_allocated(device: object = None) -> None:
    """As ``reset_peak_memory_stats``."""
    reset_peak_memory_stats(device)


reset_max_memory_cached = reset_max_memory_allocated
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def empty_cache() -> None:
    """Give memory that no array has back to the devices."""
    if started():
        here().empty_cache()


def set_per_process_memory_fraction(fraction: float, device: object = None) -> None:
    """Let this process use at most this part (0 to 1) of the device's memory."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    here().limit_memory(index_of(device), fraction)


def ipc_collect() -> None:
    """Nothing to do: no memory of a device is shared between processes by handles."""


def get_allocator_backend() -> str:
    """What gives out memory: CuPy's pool, with counts."""
    return "cupy"


__all__ = [
    "OutOfMemoryError", "device_memory_used", "empty_cache", "get_allocator_backend",
    "ipc_collect", "max_memory_allocated", "max_memory_cached", "max_memory_reserved",
    "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_stats",
    "memory_stats_as_nested_dict", "memory_summary", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_peak_memory_stats", "set_per_process_memory_fraction",
]  # fmt: skip
