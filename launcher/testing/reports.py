"""One report of a test out of those of its ranks: pure.

Who failed first, and who only for another one's failure, is told apart; ranks that say the same are
shown once.
"""

from __future__ import annotations

import bdb
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from _pytest._code.code import (
    ExceptionChainRepr,
    ReprEntry,
    ReprEntryNative,
    ReprFileLocation,
    ReprTraceback,
)

from disttrain.comm.transports.sim.stacks import ranks_text

from .stacks import Frame

_PASSED, _SKIPPED, _XFAILED, _FAILED = "passed", "skipped", "xfailed", "failed"


_GONE = "--pdb: the ranks were processes without a terminal, and have ended; -l shows variables"


class RanksFailed(Exception):
    """A test has failed on some of its ranks."""


class NothingToDebug(RanksFailed, bdb.BdbQuit):
    """The same where pytest would open its debugger: on a frame of ours, as the rank is gone."""


@dataclass
class Verdict:
    """What one rank has to say. ``report``: None where it could not; then ``cause`` says why, and
    ``threads`` where it stood. ``echo``: the rank whose failure is all that it has failed for.
    ``spared``: it was to die; ``stopped``: it was ended since others had failed.
    ``ranks``: for whom it speaks, where these are more."""

    rank: int
    report: pytest.TestReport | None
    cause: str = ""
    echo: int | None = None
    spared: bool = False
    stopped: bool = False
    threads: list[list[Frame]] = field(default_factory=list)
    ranks: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        if self.spared:
            return _PASSED
        if self.report is None:
            return _FAILED
        if self.report.skipped:
            return _XFAILED if hasattr(self.report, "wasxfail") else _SKIPPED
        return self.report.outcome


@dataclass
class Outcome:
    """The test's. ``before``: a line that stands above the ranks' failures."""

    num_ranks: int
    kind: str = _PASSED
    longrepr: Any = None
    summary: str = ""
    wasxfail: str | None = None
    sections: list[tuple[str, str]] = field(default_factory=list)
    properties: list[tuple[str, object]] = field(default_factory=list)

    debugged: bool = False  # pytest was started with --pdb

    def with_subtests(self, failed: int) -> Outcome:
        """The same, failed where so many subtests have, which pytest shows by themselves."""
        if failed and self.kind == _PASSED:
            self.kind, self.summary = _FAILED, f"contains {failed} failed subtests"
            self.longrepr = self.summary
        return self

    def tell(self) -> None:
        """What the test's own call does in pytest's process."""
        if self.kind == _SKIPPED:
            pytest.skip(self.summary)
        if self.kind == _XFAILED:
            raise pytest.xfail.Exception(self.summary)
        if self.kind == _FAILED:
            if self.debugged:
                self.sections.append(("Not debugged", _GONE))
                raise NothingToDebug(self.summary)
            raise RanksFailed(self.summary)

    def enter(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Make ``report``, of that call, the test's."""
        error = None if call.excinfo is None else call.excinfo.value
        ours = (RanksFailed, pytest.skip.Exception, pytest.xfail.Exception)
        report.sections[:] = [s for s in report.sections if not s[0].endswith(" call")]
        report.sections += self.sections
        report.user_properties = [*report.user_properties, *self.properties]
        if error is not None and not isinstance(error, ours):
            return  # something else was found, at the end of the call
        report.outcome = "skipped" if self.kind == _XFAILED else self.kind  # type: ignore
        report.longrepr = self.longrepr
        if self.wasxfail is not None:
            report.wasxfail = self.wasxfail
        elif hasattr(report, "wasxfail"):
            del report.wasxfail


def combine(
    num_ranks: int, verdicts: Sequence[Verdict], head: str = "", said: str = "", amiss: str = ""
) -> Outcome:
    """``head``: what is to be known of a failure, such as the seed; ``said``: what was written
    outside of the ranks' captures; ``amiss``: why it has failed though no rank has."""
    kinds = {v.rank: v.kind for v in verdicts}
    neutral = {v.rank for v in verdicts if _follows(v, kinds)}
    told = [v for v in verdicts if v.rank not in neutral]
    xfailed = [v for v in told if v.kind == _XFAILED]
    if xfailed:  # then others need not have failed
        told = [v for v in told if not _is_xpass(v)]
    outcome = Outcome(num_ranks, sections=_sections(verdicts, num_ranks, said))
    outcome.properties = [p for v in verdicts if v.report for p in v.report.user_properties]
    failed = sorted((v for v in told if v.kind == _FAILED), key=lambda v: v.stopped)
    skipped = [v for v in told if v.kind == _SKIPPED]
    if amiss and not failed:
        outcome.kind, outcome.longrepr, outcome.summary = _FAILED, amiss, amiss
    elif failed:
        _fail(outcome, failed, [v for v in verdicts if v.rank in neutral], head)
    elif xfailed:
        outcome.kind, outcome.longrepr = _XFAILED, _of(xfailed[0]).longrepr
        outcome.wasxfail = outcome.summary = getattr(_of(xfailed[0]), "wasxfail", "")
    elif skipped:
        outcome.kind, outcome.summary = _SKIPPED, _why_skipped(skipped, len(told))
        place: Any = _of(skipped[0]).longrepr
        outcome.longrepr = (*place[:2], f"Skipped: {outcome.summary}")
    else:
        xpassed = [v for v in told if hasattr(v.report, "wasxfail")]
        outcome.wasxfail = getattr(_of(xpassed[0]), "wasxfail", None) if xpassed else None
    return outcome


def _of(verdict: Verdict) -> pytest.TestReport:
    assert verdict.report is not None
    return verdict.report


def _follows(verdict: Verdict, kinds: dict[int, str]) -> bool:
    """Has it failed only for another rank, which has a reason of its own?"""
    named = verdict.echo
    return (
        named is not None
        and verdict.kind == _FAILED
        and named != verdict.rank
        and kinds.get(named, _PASSED) != _PASSED
    )


def _is_xpass(verdict: Verdict) -> bool:
    text = None if verdict.report is None else verdict.report.longrepr
    return isinstance(text, str) and text.startswith("[XPASS(strict)]")


def _why_skipped(skipped: Sequence[Verdict], num_ranks: int) -> str:
    reasons: dict[str, list[int]] = {}
    for verdict in skipped:
        longrepr: Any = _of(verdict).longrepr
        reason = str(longrepr[2]).removeprefix("Skipped: ")
        reasons.setdefault(reason, []).append(verdict.rank)
    if len(reasons) == 1 and len(skipped) == num_ranks:
        return next(iter(reasons))
    return "; ".join(f"{ranks_text(ranks)}: {reason}" for reason, ranks in reasons.items())


# --- a failure ---------------------------------------------------------------------------------


def _fail(
    outcome: Outcome, failed: Sequence[Verdict], echoes: Sequence[Verdict], head: str
) -> None:
    """The failures one below the other, each with its ranks above it."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in failed:
        groups.setdefault(_text_of(verdict), []).append(verdict)
    chain: list[tuple[Any, Any, str | None]] = []
    lines = [head] if head else []
    for same in groups.values():
        who = f"{_names(same)} of {outcome.num_ranks}"
        chain.append((ReprTraceback([], None, "long"), None, "\n".join([*lines, f"{who}:"])))
        lines = [""]
        chain += _shown(same[0])
    for line in _echo_lines(echoes):
        lines.append(line)
    first = failed[0]
    where = _names(next(iter(groups.values())))
    which = head.partition(";")[0]
    outcome.summary = f"{where}: {_cause_of(first)}" + (f" ({which})" if head else "")
    tail = "\n".join(lines[1:]) or None
    chain.append((ReprTraceback([], None, "long"), _crash_of(first, outcome.summary), tail))
    outcome.kind, outcome.longrepr = _FAILED, ExceptionChainRepr(chain)


def _names(verdicts: Sequence[Verdict]) -> str:
    return ranks_text([rank for v in verdicts for rank in v.ranks or (v.rank,)])


def _text_of(verdict: Verdict) -> str:
    if verdict.report is not None:
        return str(verdict.report.longrepr)
    return f"{verdict.cause} {verdict.threads}"


def _shown(verdict: Verdict) -> list[tuple[Any, Any, str | None]]:
    if verdict.report is None:
        return [(_standing(verdict), None, None)]
    longrepr: Any = verdict.report.longrepr
    if hasattr(longrepr, "chain"):
        return list(longrepr.chain)
    if hasattr(longrepr, "reprtraceback"):
        return [(longrepr.reprtraceback, longrepr.reprcrash, None)]
    text = ReprEntryNative([f"{longrepr}\n"])
    return [(ReprTraceback([text], None, "native"), None, None)]


def _standing(verdict: Verdict) -> Any:
    """Where a rank stood that was ended, or what it died of."""
    entries: list[Any] = [
        ReprEntry(
            [f"    {frame.source}"], None, None,
            ReprFileLocation(_near(frame.path), frame.line, f"in {frame.function}"), "short",
        )
        for stack in verdict.threads for frame in stack
    ]  # fmt: skip
    said = [f"E   {line}" for line in verdict.cause.splitlines()]
    entries.append(ReprEntry(said, None, None, None, "short"))
    return ReprTraceback(entries, None, "short")


def _near(path: str) -> str:
    """As pytest shows it: relative to where we are, if it is below."""
    return path.removeprefix(os.getcwd() + os.sep)


def _cause_of(verdict: Verdict) -> str:
    if verdict.report is None:
        return verdict.cause.partition("\n")[0]
    longrepr: Any = verdict.report.longrepr
    crash = getattr(longrepr, "reprcrash", None)
    return str(longrepr if crash is None else crash.message).partition("\n")[0]


def _crash_of(verdict: Verdict, summary: str) -> ReprFileLocation:
    longrepr: Any = None if verdict.report is None else verdict.report.longrepr
    crash = getattr(longrepr, "reprcrash", None)
    if crash is not None:
        return ReprFileLocation(crash.path, crash.lineno, summary)
    if verdict.threads:
        frame = verdict.threads[0][-1]
        return ReprFileLocation(_near(frame.path), frame.line, summary)
    return ReprFileLocation("", 0, summary)


def _echo_lines(echoes: Sequence[Verdict]) -> list[str]:
    by: dict[int, list[int]] = {}
    for verdict in echoes:
        assert verdict.echo is not None
        by.setdefault(verdict.echo, []).append(verdict.rank)
    return [
        f"{ranks_text(ranks)} ended with PeerFailed, for rank {named}"
        for named, ranks in by.items()
    ]


def _sections(verdicts: Sequence[Verdict], num_ranks: int, said: str) -> list[tuple[str, str]]:
    """What each rank has written during the call."""
    found = []
    for verdict in verdicts:
        for name, text in [] if verdict.report is None else verdict.report.sections:
            if name.endswith(" call") and text:
                mine = f"{name} (rank {verdict.rank})" if num_ranks > 1 else name
                found.append((mine, text))
    if said.strip():
        found.append(("Captured launcher call", said))
    return found
