"""A transport whose calls carry what a rank wants to be equal on all ranks of the group.

It stands in for the transport of a group once that has asked for such a check, and hands on every
verb. While there is a digest to compare, the header of the next collective carries it: no message
more. Where the digests differ, who has them says what (``Ledger.explain``).

Knows transports, headers and digests; no values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...errors import CollectiveMismatch, ValuesDiffer
from ..calls.header import VALUES, Call, differing_field
from ..calls.work import Work

_LATEST = 16  # calls of which it is known what they carried


class Carriage(Protocol):
    """What one call carries."""

    digest: int
    told: str


class Ledger(Protocol):
    """Who has the values. ``pending``: whether there are some that no call has carried."""

    @property
    def pending(self) -> bool: ...

    def take(self) -> Carriage:
        """What the next call carries, which is pending no longer."""
        ...

    def explain(self, carried: Carriage, number: int, error: CollectiveMismatch) -> Exception:
        """What to raise where digests differ in operation ``number``; all members ask, each where
        it has found it."""
        ...


class Unexplained(CollectiveMismatch):
    """Digests differ in an operation that is not waited for yet: who waits calls ``explain``."""

    def __init__(self, text: str, explain: Callable[[], Exception]) -> None:
        super().__init__(text)
        self._explain = explain
        self._found: Exception | None = None

    def explain(self) -> Exception:
        """What to raise; asked for once."""
        if self._found is None:
            self._found = self._explain()
        return self._found

    def __reduce__(self) -> tuple:
        return CollectiveMismatch, self.args


class Carried:
    """``of``, whose collectives carry what is pending in ``ledger``."""

    def __init__(self, of: Any, ledger: Ledger) -> None:
        self.__dict__.update(of=of, ledger=ledger, latest=deque(maxlen=_LATEST))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["of"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["of"], name, value)

    def all_reduce_each(self, calls: Sequence[Call], *rest: Any) -> int:
        return self._run("all_reduce_each", calls[0], calls[1:], rest)

    def split(self, call: Call, members: Any, name: str, swap: Any = None) -> Any:
        if swap is not None:  # only some ranks come
            return self.of.split(call, members, name, swap)
        return self._run("split", call, None, (members, name))

    def close(self, call: Call | None) -> None:
        if call is None or not self.ledger.pending:
            self.of.close(call)
            return
        try:
            self.of.close(self._carrying(self.ledger.take(), call))
        except CollectiveMismatch as error:
            if differing_field(str(error))[1] != VALUES:
                raise
            raise ValuesDiffer(str(error)) from None  # nobody is left to ask

    def _run(
        self, verb: str, call: Call, others: Sequence[Call] | None, rest: tuple, **named: Any
    ) -> Any:  # fmt: skip
        carried = None
        if self.ledger.pending:
            carried = self.ledger.take()
            call = self._carrying(carried, call)
        first: Any = call if others is None else [call, *others]
        try:
            work = getattr(self.of, verb)(first, *rest, **named)
        except CollectiveMismatch as error:
            found = self._unexplained(carried, error)
            if found is None:
                raise
            raise found.explain() from None
        if carried is not None and isinstance(work, Work):
            work.on_end(lambda ended: self._look(carried, ended))
        return work

    def _look(self, carried: Carriage | None, ended: Work) -> None:
        """An operation has ended that is waited for later, or already."""
        error = ended._error
        if isinstance(error, CollectiveMismatch):
            ended._error = self._unexplained(carried, error) or error

    def _carrying(self, carried: Carriage, call: Call) -> Call:
        self.latest.append(carried)
        return call.carrying(carried.digest, carried.told)

    def _unexplained(
        self, carried: Carriage | None, error: CollectiveMismatch
    ) -> Unexplained | None:
        """The error of an operation in which every rank has carried something; None of others. Of
        devices it may be that of an operation before: the text says which."""
        number, field = differing_field(str(error))
        if field != VALUES:
            return None
        text, known = str(error), [*self.latest]
        of = next((c for c in reversed(known) if f"same({c.told})" in text), carried)
        if of is None:
            return None
        found, ledger = of, self.ledger
        return Unexplained(text, lambda: ledger.explain(found, number, error))


def _verb(name: str) -> Callable[..., Any]:
    def verb(self: Carried, call: Call, *rest: Any, **named: Any) -> Any:
        return self._run(name, call, None, rest, **named)

    verb.__name__ = name
    return verb


for _name in (
    *("barrier", "broadcast", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
):
    setattr(Carried, _name, _verb(_name))
