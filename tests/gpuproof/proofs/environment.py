"""What the doctor says of the machine."""

from __future__ import annotations

import platform
import sys

from disttrain import doctor

from ..journal import Job
from ..packages import LIBRARIES, NEEDED, versions


def prove(job: Job) -> None:
    """Problems that the doctor finds are failures."""
    job.journal.note(f"{platform.platform()}, Python {sys.version.split()[0]}")
    names = [n.format(v) for n in (*NEEDED.values(), *LIBRARIES) for v in (12, 13)]
    found = versions(dict.fromkeys([*names, "torch", "triton"]))
    job.journal.note(", ".join(f"{name} {version}" for name, version in found.items()))
    for finding in doctor.examine():
        if finding.group == "GPU" or finding.state == "problem":
            job.case(f"{finding.group}: {finding.name}", lambda f=finding: _told(f, job.real))


def _told(finding: doctor.Finding, real: bool) -> str:
    if finding.state == "problem" and real:
        raise RuntimeError(f"{finding.value}; {finding.install}")
    return finding.value
