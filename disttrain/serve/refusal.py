"""A request that is not answered with a result."""

from __future__ import annotations

_LONGEST = 400  # characters of a text; what a client has sent is repeated no further


class Refused(Exception):
    """``status``: of HTTP; ``retry``: seconds after which another try makes sense (0: none)."""

    def __init__(self, status: int, text: str, retry: int = 0) -> None:
        super().__init__(text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ...")
        self.status, self.retry = status, retry


def shown(value: object, longest: int = 60) -> str:
    """A value of a request, as an error repeats it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        text = type(value).__name__
    return text if len(text) <= longest else text[: longest - 4] + " ..."
