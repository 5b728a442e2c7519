"""``torch.nn.attention`` and the switches of ``torch.backends.cuda``: ways of computing attention.
There is one way here, so what a program chooses is kept, and told when asked for."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

import disttrain as dt

from ....core import Tensor
from ...publish import Shim


class SDPBackend(enum.Enum):
    """Ways of computing attention, by PyTorch's names and numbers."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


def causal_upper_left(*size: int) -> Tensor:
    """The mask (queries, keys) by which query ``i`` sees the keys up to ``i``. (PyTorch's is a
    tensor of a class of its own.)"""
    return dt.ones(*size, dtype=dt.bool).tril()


def causal_lower_right(*size: int) -> Tensor:
    """The same mask, by which the last query sees all keys."""
    return dt.ones(*size, dtype=dt.bool).tril(size[-1] - size[-2])


_NAMES = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


class Switches:
    """Which ways a program allows."""

    def __init__(self) -> None:
        self.allowed = set(_NAMES.values())

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Those of ``torch.backends.cuda``: ``enable_math_sdp``, ``math_sdp_enabled`` ..."""
        made: dict[str, Callable[..., Any]] = {}
        for name, way in _NAMES.items():
            made[f"enable_{name}_sdp"] = lambda enabled, way=way: self.allow(way, enabled)
            made[f"{name}_sdp_enabled"] = lambda way=way: way in self.allowed
        return made

    def allow(self, way: SDPBackend, enabled: bool) -> None:
        (self.allowed.add if enabled else self.allowed.discard)(way)

    @contextlib.contextmanager
    def sdpa_kernel(self, backends: Any, set_priority: bool = False) -> Iterator[dict]:
        """Inside the block only ``backends`` (one, or a list) are allowed."""
        chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
        for way in chosen:
            if not isinstance(way, SDPBackend):
                raise AssertionError(
                    "sdpa_kernel: Backend must be an instance of SDPBackend or a list of "
                    f"SDPBackend instances; {way!r} given"
                )
        before, self.allowed = self.allowed, set(chosen)
        try:
            yield {}
        finally:
            self.allowed = before

    def sdp_kernel(
        self, enable_flash: bool = True, enable_math: bool = True,
        enable_mem_efficient: bool = True, enable_cudnn: bool = True,
    ) -> contextlib.AbstractContextManager:  # fmt: skip
        """``torch.backends.cuda.sdp_kernel``, the older spelling of ``sdpa_kernel``."""
        chosen = {"flash": enable_flash, "math": enable_math,
                  "mem_efficient": enable_mem_efficient, "cudnn": enable_cudnn}  # fmt: skip
        return self.sdpa_kernel([way for name, way in _NAMES.items() if chosen[name]])

    def modules(self) -> dict[str, Shim]:
        """``torch.nn.attention`` and what is below it."""
        whole, bias = "torch.nn.attention", "torch.nn.attention.bias"
        top = Shim(whole).give(SDPBackend=SDPBackend, sdpa_kernel=self.sdpa_kernel)
        below = Shim(bias).give(
            causal_upper_left=causal_upper_left, causal_lower_right=causal_lower_right
        )
        return {whole: top, bias: below}
