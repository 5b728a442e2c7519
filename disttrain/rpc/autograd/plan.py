"""Which messages a backward pass goes back over (SMART mode). Data to data; knows no graph.

A received tensor leads to the message that brought it; that message's send node, at its sender,
leads to tensors that other messages brought there. What a sender knew of that travelled with the
message (``known``); a worker looks at its own graph for its own messages; the rest is asked for.

    plan.reached(messages)      # roots lead to these
    while plan.own or plan.ask:
        ...                     # look at one's own, ask others, and tell the answers by reached()
    plan.found                  # all messages for which a gradient will arrive at their sender
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

SENDER = 48  # a message's upper bits are its sender


class Plan:
    def __init__(self, me: int, known: Mapping[int, Sequence[int] | None]) -> None:
        self.me, self.known = me, known
        self.found: set[int] = set()
        self.own: list[int] = []
        self.ask: dict[int, list[int]] = {}

    def reached(self, messages: Iterable[int], looked: bool = False) -> None:
        """The walk comes to ``messages``. ``looked``: somebody has looked where they lead."""
        found, stack = self.found, list(messages)
        while stack:
            m = stack.pop()
            if m in found:
                continue
            found.add(m)
            if m >> SENDER == self.me:
                self.own.append(m)
            elif not looked:
                deps = self.known.get(m)
                if deps is None:
                    self.ask.setdefault(m >> SENDER, []).append(m)
                else:
                    stack.extend(deps)

    def questions(self) -> dict[int, list[int]]:
        """Whom to ask where which messages lead."""
        ask, self.ask = self.ask, {}
        return ask

    def answered(self, looked: Iterable[int], open_: Iterable[int]) -> None:
        """A worker looked where the messages lead that it was asked for: to ``looked``, and to
        ``open_``, of which it does not know more."""
        self.reached(looked, True)
        self.reached(open_)

    def workers(self) -> set[int]:
        return {m >> SENDER for m in self.found}


def closure(
    deps: Iterable[int], of: Callable[[int], Sequence[int] | None], peer: int, limit: int
) -> dict[int, Sequence[int]]:
    """What is known (``of(message)``) of where ``deps`` lead, for ``peer``, which knows of its own
    messages; at most ``limit`` numbers."""
    records: dict[int, Sequence[int]] = {}
    stack, size = list(deps), 0
    while stack:
        m = stack.pop()
        if m in records or m >> SENDER == peer:
            continue
        more = of(m)
        if more is None:
            continue
        size += 2 + len(more)
        if size > limit:
            break
        records[m] = more
        stack.extend(more)
    return records
