"""Messages of simulated ranks on their way: which receive gets which, in which order.

Messages of one pair arrive in the order in which they were sent; a receive takes the first one of
its source (or of anybody) with its key (group and tag). Headers are compared; where they differ,
both sides are told. Knows keys and headers; no clock, no threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....errors import CollectiveMismatch
from ...calls.header import Call, difference, mismatch_text

Key = tuple[str, int]  # the group's and the tag's


@dataclass(eq=False, slots=True)
class Letter:
    """A message. ``src`` and ``dst`` are world ranks. ``taken()`` is called when a receive has got
    it, where its sender waits for that."""

    call: Call
    data: np.ndarray
    src: int
    dst: int
    key: Key
    taken: Callable[[], None] | None = None


@dataclass(eq=False, slots=True)
class Request:
    """A receive. ``ended(source, error)`` is called once."""

    call: Call
    into: np.ndarray
    src: int | None
    key: Key
    ended: Callable[[int | None, BaseException | None], None]


class Posts:
    """What has arrived at each rank, and what each wants."""

    def __init__(self) -> None:
        self._came: dict[int, list[Letter]] = {}
        self._wanted: dict[int, list[Request]] = {}
        self._refused: dict[tuple[int, int], str] = {}
        self._count: dict[tuple[int, int], int] = {}

    def waits(self, nbytes: int) -> bool:
        """Whether the send of so many bytes lasts until a receive has got them."""
        return False

    def asked(self) -> None:
        """A rank asks whether something of its own has ended, and does not wait for it."""

    def arrive(self, letter: Letter) -> None:
        wanted = self._wanted.get(letter.dst, [])
        for request in wanted:
            if fit(letter, request):
                wanted.remove(request)
                self._give(letter, request)
                return
        self._came.setdefault(letter.dst, []).append(letter)

    def want(self, rank: int, request: Request) -> None:
        came = self._came.get(rank, [])
        for letter in came:
            if fit(letter, request):
                came.remove(letter)
                self._give(letter, request)
                return
        self._wanted.setdefault(rank, []).append(request)

    def refusal(self, src: int, dst: int) -> CollectiveMismatch | None:
        """What an earlier message of this pair was refused for, told once."""
        text = self._refused.pop((src, dst), None)
        return None if text is None else CollectiveMismatch(text)

    def _give(self, letter: Letter, request: Request) -> None:
        if letter.taken is not None:
            letter.taken()
        pair = letter.src, letter.dst
        number = self._count[pair] = self._count.get(pair, 0) + 1
        position = number.to_bytes(8, "little")
        field = difference([position + request.call.tail, position + letter.call.tail])
        if field:
            calls = {letter.src: letter.call.text, letter.dst: request.call.text}
            if letter.src == letter.dst:
                calls = {letter.src: f"{letter.call.text} and {request.call.text}"}
            text = mismatch_text("send and recv", number, field, calls)
            self._refused[pair] = text
            request.ended(None, CollectiveMismatch(text))
            return
        request.into[...] = letter.data
        request.ended(letter.src, None)


def fit(letter: Letter, request: Request) -> bool:
    return letter.key == request.key and request.src in (None, letter.src)
