"""Options of a program, each rank's own: by name, set for good or for a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...context import thread


class Options:
    """Options by their names in ``defaults``, as attributes, and ``update``. ``slots``: those that
    others read, with the rank's slots that have them; ``effects``: what setting one does besides.
    """

    def __init__(
        self, slot: str, defaults: Mapping[str, Any], slots: Mapping[str, str],
        effects: Mapping[str, Callable[[Any], object]],
    ) -> None:  # fmt: skip
        self._slot, self._defaults, self._slots, self._effects = slot, defaults, slots, effects

    @property
    def values(self) -> dict[str, Any]:
        """All options as they are."""
        return {name: self.read(name) for name in self._defaults}

    def _default(self, name: str) -> Any:
        if name not in self._defaults:
            raise AttributeError(f"Unrecognized config option: {name}")
        return self._defaults[name]

    def read(self, name: str) -> Any:
        """An option as it is."""
        default, slots = self._default(name), thread.rank.slots
        if name in self._slots:
            return bool(slots.get(self._slots[name], default))
        return slots.get(self._slot, {}).get(name, default)

    def update(self, name: str, value: Any) -> None:
        """Set an option."""
        self._default(name)
        if name in self._effects:
            self._effects[name](value)
        slots = thread.rank.slots
        if name in self._slots:
            slots[self._slots[name]] = bool(value)
        else:
            slots.setdefault(self._slot, {})[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.read(name)

    def parse_flags_with_absl(self) -> None:
        """Flags of the command line are the launcher's."""


class Block:
    """``with block(value):`` an option as it is to be inside."""

    def __init__(self, options: Options, name: str, default: Any = None) -> None:
        self.options, self.name, self.default = options, name, default

    @property
    def value(self) -> Any:
        """The option as it is."""
        return self.options.read(self.name)

    @contextmanager
    def __call__(self, value: Any = None) -> Iterator[None]:
        before = self.value
        self.options.update(self.name, self.default if value is None else value)
        try:
            yield
        finally:
            self.options.update(self.name, before)


__all__ = ["Block", "Options"]
