"""How ranks whose digests differ find the first value that does: by messages of their group.

The group's first rank asks, the others answer: for the hashes of what the call has carried, then
for those of the leaves of the first value that differs, then for what that leaf is. It says to all
what to raise, so that all raise the same. Messages, since ranks may find that an operation has
failed at different places. Who does not answer in time, or has died, ends it for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...comm.group.group import ProcessGroup
from ...errors import CollectiveMismatch, PeerFailed, ValuesDiffer, WaitTimeout
from ..collectives import objects
from .leaves import combined
from .ledger import Carriage, Entry, Ledger
from .report import NOTHING, first_apart, text_of

_TAG, _TAGS = 0xFFFE0000, 1 << 10  # above those of programs and pipelines
_PATIENCE = 60.0  # seconds for a rank that has yet to find that the operation has failed
_OVER = "over"


def explain(
    group: ProcessGroup, ledger: Ledger, carried: Carriage, number: int, error: CollectiveMismatch
) -> Exception:
    """What all ranks raise where what operation ``number`` carried differs."""
    before, group.timeout = group.timeout, min(group.timeout, _PATIENCE)
    try:
        answers = _Answers(ledger, carried)
        tag = _TAG + number % _TAGS
        text = _answer(group, tag, answers) if group.rank else _ask(group, tag, answers, error)
    except PeerFailed as failed:
        return failed
    except WaitTimeout as late:
        return ValuesDiffer(f"{error}\nWhich value it is could not be found out: {late}")
    finally:
        group.timeout = before
    return ValuesDiffer(text) if text else error


class _Answers:
    """What one rank knows of what a call has carried."""

    def __init__(self, ledger: Ledger, carried: Carriage) -> None:
        self.lost, self.entries = ledger.kept(carried)

    def __call__(self, question: Sequence[Any]) -> Any:
        """``question``: the kind of it, and the numbers of a value and a leaf."""
        kind, index, part = question
        if kind == "values":
            return [self.lost, [e.hash for e in self.entries]]
        value = self.entries[index] if index < len(self.entries) else None
        if kind == "leaves":
            return [] if value is None else [combined([leaf]) for leaf in value.leaves]
        return self._leaf(value, part)

    def _leaf(self, value: Entry | None, part: int) -> dict[str, Any]:
        if value is None:
            last = self.entries[-1].site if self.entries else "the start"
            return {"hash": 0, "told": NOTHING, "site": last, "number": None, "stats": None,
                    "name": "", "path": ""}  # fmt: skip
        row = {"name": value.name, "site": value.site, "number": None, "stats": None}
        if part < 0:  # the leaves are alike, and the name is not
            return row | {"hash": value.hash, "told": f"{value.kind} {value.name!r}", "path": ""}
        if part >= len(value.leaves):
            return row | {"hash": 0, "told": NOTHING, "path": ""}
        leaf = value.leaves[part]
        stats = None
        if leaf.stats is not None:
            stats = leaf.stats._asdict() | {"shape": leaf.told.partition(" ")[0], "hash": 0}
        return row | {"hash": combined([leaf]), "told": leaf.told, "path": leaf.path,
                      "stats": stats, "number": leaf.number,
                      "site": leaf.site or value.site}  # fmt: skip


def _answer(group: ProcessGroup, tag: int, answers: _Answers) -> str:
    while True:
        question = objects.recv(group, 0, tag)[0]
        if question[0] == _OVER:
            return str(question[1])
        objects.send(group, answers(question), 0, tag)


def _ask(group: ProcessGroup, tag: int, answers: _Answers, error: CollectiveMismatch) -> str:
    def ask(*question: Any) -> dict[int, Any]:
        for member in range(1, group.size):
            objects.send(group, list(question), member, tag)
        found = {group.ranks[0]: answers(question)}
        for member in range(1, group.size):
            found[group.ranks[member]] = objects.recv(group, member, tag)[0]
        return found

    text = _find(ask, f"group {group.name}", _call_of(str(error)))
    for member in range(1, group.size):
        objects.send(group, [_OVER, text], member, tag)
    return text


def _find(ask: Any, where: str, call: str) -> str:
    """The text of what differs first; empty where nothing does."""
    values = ask("values", 0, 0)
    lost = {row[0] for row in values.values()}
    index = first_apart({rank: row[1] for rank, row in values.items()})
    if index is None or len(lost) > 1:
        if lost == {0}:
            return ""
        return (
            f"{where}: values that must be equal on all ranks differ, as {call} has found; the "
            f"first that differs is one of the first {max(lost)} since the last call that was "
            "compared, which are not kept: call a collective (barrier) more often between checks"
        )
    part = first_apart(ask("leaves", index, 0))
    told = ask("leaf", index, -1 if part is None else part)
    row = next(r for r in told.values() if r["told"] != NOTHING)
    if len({r["path"] for r in told.values() if r["told"] != NOTHING}) > 1:  # other parts, too
        for r in told.values():
            if r["told"] != NOTHING:
                r |= {"told": f"{r['told']} in {r['path']}" if r["path"] else r["told"], "path": ""}
    count = max(len(r[1]) for r in values.values()) + max(lost)
    return text_of(where, call, index + max(lost), count, row["name"], row["path"], told)


def _call_of(text: str) -> str:
    """What the first rank called, from the text of a mismatch."""
    lines: Iterator[str] = (line for line in text.splitlines() if " called " in line[2:])
    _, _, call = next(iter([*lines][1:2]), text).partition(" called ")
    what, _, rest = call.partition(" after same(")
    return f"{what} at {rest.rpartition(' at ')[2]}" if rest else "a call"


__all__ = ["explain"]
