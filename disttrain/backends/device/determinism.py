"""``use_deterministic_algorithms``: a rank's setting, by PyTorch's names and with its default, off.

Every operation here gives the same bits on each run whether it is on or off, on devices, too
(docs/cuda.md), with one exception: convolutions by cuDNN where a program has set
``backends.cudnn.deterministic`` to False. With the setting on, those are exact on each run, too, so
that nothing is refused and nothing is warned of. New memory that holds anything is filled then.
"""

from __future__ import annotations

from ... import context
from ...errors import ConfigError

_SLOT = "deterministic_algorithms"
_FILLS = "deterministic_algorithms.fill"  # the slot of whether new memory is filled then
_MODES = ("default", "warn", "error")


def _mode() -> int:
    return context.current().slots.get(_SLOT, 0)


def fills_uninitialized_memory() -> bool:
    """Whether memory that holds anything is filled when the setting is on; True at first."""
    return context.current().slots.get(_FILLS, True)


def fill_uninitialized_memory(wanted: bool) -> None:
    """Set it for the calling rank."""
    context.current().slots[_FILLS] = bool(wanted)


def fills_now() -> bool:
    """Whether ``empty`` and its kin give nan, or the largest integer."""
    slots = context.current().slots
    return slots.get(_SLOT, 0) > 0 and slots.get(_FILLS, True)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for operations that give the same bits on each run. ``warn_only`` is kept."""
    context.current().slots[_SLOT] = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """Whether the calling rank has asked for it; False at first."""
    return _mode() > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it asked for warnings only."""
    return _mode() == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """The same by number or name: "default" (0), "warn" (1), "error" (2)."""
    if debug_mode in _MODES:
        debug_mode = _MODES.index(debug_mode)
    if not isinstance(debug_mode, int) or not 0 <= debug_mode <= 2:
        raise ConfigError(
            f"set_deterministic_debug_mode: {debug_mode!r} given; needed 0, 1, 2 or one of "
            f"{', '.join(_MODES)}"
        )
    context.current().slots[_SLOT] = int(debug_mode)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: off, warn, error."""
    return _mode()
