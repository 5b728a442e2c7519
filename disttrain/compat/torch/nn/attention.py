"""``torch.nn.attention`` and the switches of ``torch.backends.cuda``: ways of computing attention.
There is one way here, so what a program chooses is kept, and told when asked for."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

from ..shim import Shim


class SDPBackend(enum.IntEnum):
    """Ways of computing attention, by PyTorch's names and numbers."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


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

    def module(self) -> Shim:
        """``torch.nn.attention``."""
        return Shim("torch.nn.attention").give(SDPBackend=SDPBackend, sdpa_kernel=self.sdpa_kernel)
