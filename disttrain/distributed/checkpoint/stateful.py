"""What a checkpoint asks of objects that it saves as a whole."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """Anything with ``state_dict()`` and ``load_state_dict()``: modules, optimizers, schedulers,
    samplers, a program's own."""

    def state_dict(self) -> dict[str, Any]:
        """Its state, as data. Tensors in it may be its own: they are only read."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what ``state_dict`` gave, now with the values of the checkpoint."""


def is_stateful(value: object) -> bool:
    """``isinstance(value, Stateful)``, which takes longer than saving a small tensor does."""
    return callable(getattr(value, "state_dict", None)) and callable(
        getattr(value, "load_state_dict", None)
    )


StatefulT = TypeVar("StatefulT", bound=Stateful)
