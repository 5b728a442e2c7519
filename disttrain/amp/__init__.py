"""Mixed precision under PyTorch's names: ``autocast``, ``GradScaler``, ``custom_fwd``."""

from .autocast_mode import (
    autocast,
    autocast_types,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_enabled,
)
from .grad_scaler import GradScaler, OptState

__all__ = [
    "GradScaler",
    "OptState",
    "autocast",
    "autocast_types",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
]
