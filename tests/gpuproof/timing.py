"""Two or more ways to do one thing, timed in turns: medians of blocks, so that whatever else
happens meets all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def in_turns(
    ways: Mapping[str, Callable[[], Any]],
    wait: Callable[[], None],
    rounds: int = 7,
    inner: int = 10,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Seconds of one call of each way: the median of ``rounds`` blocks of ``inner`` calls, the
    device waited for at the end of each block. One block of each goes before, untimed."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for fn in ways.values():
        for _ in range(max(2, inner // 4)):
            fn()
    wait()
    for _ in range(rounds):
        for name, fn in ways.items():
            start = clock()
            for _ in range(inner):
                fn()
            wait()
            times[name].append((clock() - start) / inner)
    return {name: statistics.median(found) for name, found in times.items()}


# Dense bf16 (V100: fp16) products per second of the data sheets, in TFLOP/s, by words of the name.
PEAKS = (
    ("B200", 2250.0), ("B100", 1800.0), ("GH200", 989.0), ("H200", 989.0), ("H100 PCIe", 756.0),
    ("H100 NVL", 835.0), ("H100", 989.0), ("H20", 148.0), ("A100", 312.0), ("A800", 312.0),
    ("A40", 150.0), ("A30", 165.0), ("A10", 125.0), ("L40S", 362.0), ("L40", 181.0), ("L4", 121.0),
    ("4090", 165.0), ("V100", 125.0), ("T4", 65.0),
)  # fmt: skip


def peak_of(name: str) -> float | None:
    """What the data sheet of a device says; None where it is not known here."""
    return next((value for words, value in PEAKS if words in name), None)


def gpt_flops(parameters: int, layers: int, width: int, length: int) -> float:
    """Of a training step, for each token: 6 for each parameter, and attention's (PaLM, appendix B;
    Chowdhery et al. 2022)."""
    return 6.0 * parameters + 12.0 * layers * width * length
