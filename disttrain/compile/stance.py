"""What compiled functions do where nothing captured stands for a call: a setting of the rank.

PyTorch's ``torch.compiler.set_stance``. Knows no captures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..context import thread
from ..errors import CaptureError
from .settings import settings_of

EAGER, KEPT, NONE_NEW = "force_eager", "eager_on_recompile", "fail_on_recompile"
_SECOND = ("eager_then_compile", "aot_eager_then_compile")
_ALL = ("default", EAGER, KEPT, NONE_NEW, *_SECOND)
_SLOT = "compile.stance"


def stance() -> str | None:
    """The one that is set; None for the default."""
    return thread.rank.slots.get(_SLOT)


class set_stance:  # noqa: N801  (PyTorch's name)
    """Set it: as a function from now on, as a context manager or decorator inside.

    ``default``: capture. ``force_eager``: the functions themselves. ``eager_on_recompile`` and
    ``fail_on_recompile``: replay what is captured; where nothing fits, the function itself, or a
    ``CaptureError``. ``eager_then_compile``: a function's first call runs eagerly.
    ``force_backend`` has no effect beyond the check of its name.
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: object = None,
    ) -> None:
        if stance not in _ALL:
            raise CaptureError(f"set_stance: {stance!r} given; known are {', '.join(_ALL)}")
        if skip_guard_eval_unsafe:
            raise CaptureError(
                "set_stance: skip_guard_eval_unsafe=True given; guards are looked at in each call, "
                "since a replay that does not fit would be wrong without a word"
            )
        if force_backend is not None:
            if stance != "default":
                raise CaptureError(
                    f"set_stance: force_backend given with {stance!r}; it needs 'default'"
                )
            settings_of(False, force_backend, None, None, False)
        self.stance = None if stance == "default" else stance
        self.before = _put(self.stance)

    def __enter__(self) -> None:
        _put(self.stance)

    def __exit__(self, *exc: object) -> None:
        _put(self.before)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        _put(self.before)

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            before = _put(self.stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _put(before)

        return run


def _put(stance: str | None) -> str | None:
    """Set it; the one before."""
    if any(hasattr(interp, "effects") for interp in thread.stack):
        raise CaptureError(
            "set_stance in a torch.compile region: a replay would not set it; do it outside"
        )
    slots = thread.rank.slots
    before = slots.get(_SLOT)
    slots[_SLOT] = stance
    return before


def runs_first(tried: bool, begun: bool) -> bool:
    """Whether a function runs eagerly that nothing captured stands for; raises where it may not.
    ``tried``: it was called before; ``begun``: with such arguments, and is going to be captured."""
    now = stance()
    if now == NONE_NEW and not begun:
        raise CaptureError(
            "compile: nothing captured stands for this call, and the stance is 'fail_on_recompile'"
        )
    return now == KEPT or (now in _SECOND and not tried)


__all__ = ["EAGER", "runs_first", "set_stance", "stance"]
