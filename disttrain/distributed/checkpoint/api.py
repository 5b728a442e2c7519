"""The error that all ranks of a failed save or load raise together."""

from __future__ import annotations

import traceback
from typing import Any

from ...errors import SerializationError

WRAPPED_EXCEPTION = tuple[BaseException, Any]


class CheckpointException(SerializationError):
    """A save or a load failed on some ranks. Every rank raises it, with the same text.

    ``failures`` maps the number of a failed rank to its exception and the lines where it was
    raised (None where they lie on another rank).
    """

    def __init__(self, msg: str, failures: dict[int, WRAPPED_EXCEPTION]) -> None:
        super().__init__(msg, failures)
        self._message, self._failures = msg, failures

    @property
    def failures(self) -> dict[int, WRAPPED_EXCEPTION]:
        """By rank: what went wrong there."""
        return self._failures

    def __str__(self) -> str:
        said: dict[str, list[int]] = {}  # what several ranks say alike is said once
        for rank, (error, _) in sorted(self._failures.items()):
            text = "".join(traceback.format_exception_only(type(error), error)).strip()
            said.setdefault(text, []).append(rank)
        lines = [f"  rank {', '.join(map(str, ranks))}: {text}" for text, ranks in said.items()]
        return "\n".join([f"{self._message} failed (CheckpointException ranks:"
                          f"{list(self._failures)})", *lines])  # fmt: skip

    def __reduce__(self) -> tuple:
        return CheckpointException, (self._message, {r: (e, None) for r, (e, _) in
                                                     self._failures.items()})  # fmt: skip
