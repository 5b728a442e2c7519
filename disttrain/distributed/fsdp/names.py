"""Names of parameters as if nothing were wrapped. Knows the wrappers' attribute names alone."""

from __future__ import annotations

from typing import Any

UNIT = "_fsdp_wrapped_module"  # the attribute under which a unit holds its module
ACTIVATION = "_checkpoint_wrapped_module"  # the same for checkpointed and offloaded modules
_STEPS = frozenset((UNIT, ACTIVATION))


def clean_tensor_name(name: str) -> str:
    """``name`` (dotted) without the steps that wrappers add."""
    if UNIT not in name and ACTIVATION not in name:
        return name
    return ".".join(step for step in name.split(".") if step not in _STEPS)


def replace_prefix(state: dict[str, Any], old: str, new: str) -> None:
    """Give every key of ``state`` that begins with ``old`` the beginning ``new``, in place; the
    order of the keys stays."""
    if old == new or not any(k.startswith(old) for k in state):
        return
    items = [(new + k[len(old) :] if k.startswith(old) else k, v) for k, v in state.items()]
    state.clear()
    state.update(items)


FSDP_WRAPPED_MODULE, FSDP_PREFIX = UNIT, f"{UNIT}."
