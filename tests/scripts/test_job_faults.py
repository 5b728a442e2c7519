"""A little of the matrix of faults: every kind on simulated ranks, some on processes; and that what
the documentation says is what is tested."""

from __future__ import annotations

import re

import pytest

from injections import job_faults
from injections.job_kinds import KINDS, Trial, points_of

SIMULATED = {
    (name, t.kind): t for name in ("sim", "cluster") for t in job_faults.trials(name, 40, seed=3)
}
REAL = [
    ("shm", "killed", "any moment", True),
    ("shm", "segfaults", "pair", False),
    ("shm", "over_limit", "large", False),
    ("shm", "fewer_calls", "barrier", False),
    ("env", "raises", "small", True),
    ("tcp", "exits_3", "async", False),
    ("net", "killed", "message", False),
    ("mpi", "crossed", "pair", False),
]


@pytest.mark.parametrize("transport", ["sim", "cluster"])
def test_all_kinds_are_simulated_that_can_be(transport):
    can_be = {kind for kind, spec in KINDS.items() if transport in spec.transports}
    assert {kind for name, kind in SIMULATED if name == transport} == can_be


@pytest.mark.parametrize(("transport", "kind"), SIMULATED)
def test_simulated(tmp_path, transport, kind):
    assert job_faults.run_trial(transport, SIMULATED[transport, kind], tmp_path)[1] == []


@pytest.mark.parametrize(("transport", "kind", "point", "recover"), REAL)
def test_on_processes(tmp_path, transport, kind, point, recover):
    if missing := job_faults.why_not(transport, kind):
        pytest.skip(missing)
    trial = Trial(kind, point, victim=1, ranks=3, seed=5, recover=recover)
    assert job_faults.run_trial(transport, trial, tmp_path)[1] == []


def test_the_documentation_says_what_is_tested():
    text = job_faults.DOC.read_text()
    table = text[text.index(job_faults.BEGIN) : text.index(job_faults.END)]
    rows = [line.split(" | ")[:6] for line in table.splitlines() if line.startswith("| ")][1:]
    fresh = [line.split(" | ")[:6] for line in job_faults.table({}).splitlines()][2:]
    assert [[re.sub(r" \|$", "", c) for c in row] for row in rows] == [
        [re.sub(r" \|$", "", c) for c in row] for row in fresh
    ]


def test_every_kind_has_points():
    assert all(points_of(kind) for kind in KINDS)
