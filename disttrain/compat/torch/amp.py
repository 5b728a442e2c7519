"""``torch.amp`` where nothing runs in mixed precision: what programs name around their step.

A context that is off, or meant for a CUDA device that is absent, changes nothing. One that asks
for lower precision on the CPU is met with full precision, and says so.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from ...core import dtypes
from ...errors import ConfigError
from .shim import Shim


class autocast(contextlib.ContextDecorator):  # noqa: N801  (the field's spelling)
    """``with autocast("cpu", dtype=bfloat16):``, or a decorator."""

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:  # fmt: skip
        self.dtype = dtypes.bfloat16 if dtype is None else dtype
        if enabled and device_type != "cpu":
            warnings.warn(f"autocast: no {device_type} device here; it has no effect", stacklevel=2)
        elif enabled and self.dtype is not dtypes.float32:
            warnings.warn(
                f"autocast: this version computes in the tensors' own types, not in {self.dtype}; "
                "results are as precise or more, the speed is that of full precision",
                stacklevel=2,
            )

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def _cuda_autocast(
    enabled: bool = True, dtype: Any = None, cache_enabled: bool | None = None
) -> autocast:
    return autocast("cuda", dtype, enabled, cache_enabled)


class GradScaler:
    """Scaling of the loss, switched off: float16 gradients that would need it do not arise here."""

    def __init__(self, device: str = "cuda", *, enabled: bool = True, **settings: Any) -> None:
        if enabled and str(device).startswith("cpu"):
            raise ConfigError(
                "GradScaler: device='cpu', enabled=True given; gradients are not computed in "
                "float16 here, so there is nothing to scale. Give enabled=False"
            )
        if enabled:
            warnings.warn("GradScaler: no CUDA device here; it has no effect", stacklevel=2)

    def scale(self, outputs: Any) -> Any:
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Gradients were not scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """There is no scale to change."""

    def get_scale(self) -> float:
        return 1.0

    def is_enabled(self) -> bool:
        return False

    def state_dict(self) -> dict:
        return {}

    def load_state_dict(self, state_dict: dict) -> None:
        """What another scaler had learnt is not needed here."""


def _cuda_scaler(init_scale: float = 65536.0, *, enabled: bool = True, **more: Any) -> GradScaler:
    return GradScaler("cuda", enabled=enabled)


def modules() -> dict[str, Shim]:
    """``torch.amp`` and ``torch.cuda.amp``."""
    names = {"autocast": autocast, "GradScaler": GradScaler}
    return {
        "torch.amp": Shim("torch.amp").give(**names),
        "torch.cuda.amp": Shim("torch.cuda.amp").give(
            autocast=_cuda_autocast, GradScaler=_cuda_scaler
        ),
    }
