"""What a worker allows and expects, and whether it takes a call."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ... import context
from ...errors import CallRefused
from . import kinds


@dataclass
class Settings:
    """What a worker allows and expects.

    ``timeout``: seconds for a call that is given none (0: no limit). ``max_depth``: so many calls
    may be nested in each other. ``max_calls``: one caller may have so many of its calls handled
    here at once; ``max_calls_per_second``: and make so many of them in a second (None: any number).
    ``callable_modules`` and ``cloudpickle``: see ``packing.Packer``. ``threads`` is only told:
    there is always one for the next call.
    """

    timeout: float = 60.0
    max_depth: int = 1000
    max_calls: int = 100_000
    max_calls_per_second: float | None = None
    callable_modules: Collection[str] | None = None
    cloudpickle: bool = False
    threads: int = 16


_TELL_EVERY = 60.0
_log = logging.getLogger(__name__)


class Admission:
    """Whether a worker (``me``) takes one more call. Calls of functions are counted; what workers
    tell each other on their own account is not."""

    def __init__(self, me: str, settings: Settings) -> None:
        self._me, self._most, self._rate = me, settings.max_calls, settings.max_calls_per_second
        self._left: dict[str, tuple[float, float]] = {}  # caller -> (calls that are left, when)
        self._told = -_TELL_EVERY
        self.watches = self._rate is not None

    def check(self, request: Any, handled: list) -> None:
        """Raise ``CallRefused``, which names the limit, where ``request`` is one too many of its
        caller's. ``handled``: the requests that this worker has in hand, this one included."""
        if request.kind not in (kinds.FUNCTION, kinds.REMOTE):
            return
        count = sum(r.caller is request.caller and r.kind == request.kind for r in handled)
        now = context.now()
        try:
            self.decide(request.caller.name, count, now)
        except CallRefused as refused:
            if now - self._told >= _TELL_EVERY:
                self._told = now
                _log.warning("%s", refused)
            raise

    def decide(self, caller: str, handled: int, now: float) -> None:
        """``handled``: how many calls of ``caller`` are in hand, with this one. Raises
        ``CallRefused``."""
        if handled > self._most:
            raise CallRefused(
                f"worker {self._me!r} handles {handled - 1} calls of worker {caller!r} already; at "
                f"most {self._most} (max_calls). Wait for some of their answers first, or raise "
                f"the option on worker {self._me!r}"
            )
        if self._rate is None:
            return
        left, before = self._left.get(caller, (max(1.0, self._rate), now))
        left = min(max(1.0, self._rate), left + (now - before) * self._rate)
        self._left[caller] = (left, now) if left < 1.0 else (left - 1.0, now)
        if left < 1.0:
            raise CallRefused(
                f"worker {caller!r} calls worker {self._me!r} more often than {self._rate:g} times "
                "a second (max_calls_per_second). Call less often, or raise the option on worker "
                f"{self._me!r}"
            )
