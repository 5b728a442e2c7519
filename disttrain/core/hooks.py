"""Where hooks are kept: by id, in order of registration, until their handle takes them away."""

from __future__ import annotations

import itertools
import weakref
from typing import Any


class HookHandle:
    """Takes a hook away again: ``handle.remove()``, or leaving a ``with`` block."""

    _ids = itertools.count(1)

    def __init__(self, hooks: dict[int, Any], hook: Any = None, *, extra_dict: Any = None) -> None:
        """``hook``: put among ``hooks``; without one the caller puts it there, under ``id``.
        ``extra_dict``: a dictionary, or some, that know the hook, too."""
        self.id = next(HookHandle._ids)
        self._hooks = weakref.ref(hooks) if isinstance(hooks, HookDict) else lambda: hooks
        self._others = () if extra_dict is None else extra_dict
        if hook is not None:
            hooks[self.id] = hook

    @property
    def hooks_dict_ref(self) -> Any:
        """Gives the hooks among which this one is kept (None when they are gone)."""
        return self._hooks

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)
        for others in (self._others,) if isinstance(self._others, dict) else self._others:
            others.pop(self.id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class HookDict(dict):
    """Hooks by id. A dict that can be weakly referred to."""

    __slots__ = ("__weakref__",)
