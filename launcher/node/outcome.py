"""What came of a generation's ranks on this node: from their ends and black boxes to a result.

Pure but for the report's file; who failed first is ``policy``'s to say.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Any

from disttrain.comm.job.segment import HAS_LEFT, Segment
from disttrain.outputs import UNHEARD, is_heard, put

from ..plan.generation import Generation
from ..plan.job import Plan
from ..plan.policy import Exit, Policy, overcome, root_cause
from .black_box import Watching
from .report import VANISHED, RankReport, cause_of, elsewhere, headline, say, write_report

LISTEN = 5.0  # seconds for a slow reader to take the summary


@dataclass
class Attempt:
    """What one generation gave. ``results``: of each rank of this node; ``operations``: of groups,
    in which they took part."""

    code: int
    first: RankReport | None
    ranks: list[RankReport]
    results: list[bytes]
    stopped_by: int
    operations: int = 0
    seconds: float = 0.0  # for which it ran
    superseded: bool = False  # something elsewhere has ended it
    why: str = ""  # of a job of several nodes: why it has ended
    node: str = ""  # ... and the node where that has happened, if it is another one
    report: dict[str, Any] = field(default_factory=dict)  # ... and what that one says of it
    box: bytes = b""  # the black box of its ranks, packed

    def stopped(self, number: int) -> Attempt:
        """The same, of a job that a signal has ended afterwards."""
        return dataclasses.replace(self, code=128 + number, stopped_by=number)


def outcome(
    plan: Plan,
    segment: Segment,
    policy: Policy,
    reports: dict[int, RankReport],
    replaced: list[RankReport],
    results: list[bytes],
) -> Attempt:
    """All ranks of this node have ended. ``reports``: of their ends; ``replaced``: of those that
    others went on without, and that were started anew."""
    echoes = {r.rank for r in reports.values() if r.echo}
    vanished = {r.rank for r in reports.values() if r.vanished}
    over = overcome(policy.exits, segment.members(), plan.min_ranks, policy.elsewhere)
    exits = [e for e in policy.exits if e.rank not in over]
    first, code = root_cause(exits, echoes, vanished)
    if policy.stopped_by:
        code = 128 + policy.stopped_by
    ranks = [reports[rank] for rank in sorted(reports)]
    root = None if first is None else reports[first.rank]
    if plan.log_dir:
        write_report(plan.log_dir, root, ranks, code, replaced)
    return Attempt(code, root, ranks, results, policy.stopped_by, superseded=policy.superseded)


def report_of(
    e: Exit,
    plan: Plan,
    generation: Generation,
    segment: Segment,
    watching: Watching,
    stopped: bool,
) -> RankReport:
    """How a rank ended. ``stopped``: the launcher has sent it a signal."""
    slot, seen = segment.slot(e.rank), watching.last_words(e.rank, e.at, e.failed)
    cause, text = slot.error
    left = not e.failed and cause.startswith(HAS_LEFT)
    vanished = not e.failed and slot.state == "vanished"
    return RankReport(
        rank=e.rank, pid=slot.pid, code=e.code, signal=e.signal,
        cause=VANISHED if vanished else cause_of(e, cause), vanished=vanished or left,
        traceback=text, doing=(slot.doing or seen.doing) if e.failed else "",
        echo=is_echo(cause), stopped=stopped,
        error_file=plan.error_file(generation, e.rank) if cause and plan.log_dir else "",
        local_rank=generation.local_rank(e.rank), host=os.uname().nodename, step=seen.step,
        last=seen.operations if e.failed else (), time_ns=seen.time_ns,
    )  # fmt: skip


def is_echo(cause: str) -> bool:
    """Does an error only say that another rank has failed, or was missed?"""
    left = cause.startswith("CollectiveMismatch") and f": {HAS_LEFT}\n" in cause
    return left or cause.startswith("PeerFailed")


def told_of(attempt: Attempt) -> dict[str, Any]:
    """What other nodes are told of a failed attempt."""
    first = attempt.first
    got: dict[str, Any] = {"seconds": attempt.seconds, "operations": attempt.operations}
    if first is None:
        return {"cause": f"exit code {attempt.code}", "code": attempt.code, **got}
    names = "rank local_rank pid cause traceback echo code"
    return {**got, **{name: getattr(first, name) for name in names.split()}}


def tell(attempt: Attempt, plan: Plan) -> None:
    """Print the failure summary of an attempt that failed by itself."""
    if attempt.stopped_by:
        return
    if attempt.code == UNHEARD and not (is_heard(1) and is_heard(2)):
        return  # it has inherited our output, and ends as others do that nobody reads
    program, first = " ".join(plan.program), attempt.first
    if attempt.node:
        put(elsewhere(attempt.node, attempt.report, program) + "\n", patience=LISTEN)
    elif attempt.why and attempt.code and (first is None or first.echo or attempt.superseded):
        say(attempt.why)  # what is no failure of a rank here
    elif first is not None and not attempt.superseded:
        others = [r for r in attempt.ranks if r.rank != first.rank]
        put(headline(first, others, program) + "\n", patience=LISTEN)
