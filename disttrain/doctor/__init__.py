"""What this machine has, and what each missing thing would enable: ``disttrain doctor``.

Every probe answers with findings and never raises: a broken driver is a finding too. Probes that
load foreign libraries (MPI, CUDA) run in a child process, because such a library may print, hang or
take the process with it. This package changes nothing on the machine, and no part of the training
code depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from .facts import gather
from .finding import Finding, guarded
from .gpu import judge
from .machine import PROBES


def _devices() -> Iterator[Finding]:
    return judge(gather())


def examine() -> list[Finding]:
    """All findings, in the order of the report."""
    return [finding for probe in (*PROBES, _devices) for finding in guarded(probe)]


def report(findings: list[Finding]) -> str:
    """The findings as text for a terminal."""
    lines: list[str] = []
    group = ""
    wide = max(len(f.name) for f in findings)
    for f in findings:
        if f.group != group:
            group = f.group
            lines += ["", group] if lines else [group]
        mark = {"ok": "  ok      ", "missing": "  -       ", "problem": "  PROBLEM "}[f.state]
        lines.append(f"{mark}{f.name:<{wide}}  {f.value}")
        if f.state != "ok" and f.enables:
            lines.append(f"{'':<{wide + 12}}{f.enables}")
        if f.state != "ok" and f.install:
            lines.append(f"{'':<{wide + 12}}-> {f.install}")
    return "\n".join(lines)


def as_json(findings: list[Finding]) -> str:
    """The findings as a JSON array of objects."""
    return json.dumps([asdict(f) for f in findings], indent=2)
