"""Rows of a face's tables as functions: its parameters as a text, over what computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..signatures import Parameters


def passing(word: str, text: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` under the name ``word``, with the parameters of ``text``."""
    row = Parameters(word, text)
    order = [row.names.index(n) for n in row.passed]

    def function(*args: Any, **kwargs: Any) -> Any:
        values = row.values(args, kwargs)
        return fn(*[values[i] for i in order])

    function.__signature__ = row.signature  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = word
    function.__doc__ = fn.__doc__
    return function
