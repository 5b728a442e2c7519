"""``--event-log-handler console``: how ranks have ended, in the shape of torchelastic's events."""

from __future__ import annotations

import json
import os

from disttrain.outputs import put

from ..node.outcome import Attempt
from ..plan.job import Plan


def tell_events(attempt: Attempt, plan: Plan, seconds: float) -> None:
    """One line of JSON for each rank of this node, and one for the launcher, on stderr.
    ``seconds``: for which the job ran."""
    if plan.event_log != "console":
        return
    for r in attempt.ranks:
        state = "FAILED" if r.code else "SUCCEEDED"
        about = {"global_rank": r.rank, "worker_id": str(r.pid), "exitcode": r.code}
        if r.code:
            about["raw_error"] = r.cause
        _put(plan, "WORKER", f"torchelastic.worker.status.{state}", state, seconds, about)
    state = "FAILED" if attempt.code else "SUCCEEDED"
    about = {"exitcode": attempt.code}
    _put(plan, "AGENT", f"torchelastic.worker.status.{state}", state, seconds, about)


def _put(
    plan: Plan, source: str, name: str, state: str, seconds: float, about: dict[str, object]
) -> None:
    metadata = {
        "run_id": plan.run_id, "role": plan.role, "hostname": os.uname().nodename, "state": state,
        "total_run_time": round(seconds, 3), **about,
    }  # fmt: skip
    put(json.dumps({"name": name, "source": source, "metadata": metadata}) + "\n")
