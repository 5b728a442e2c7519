"""Nothing is found in programs that train as they should, however odd they look."""

from __future__ import annotations

import pytest

from support.legal_programs import PROGRAMS
from support.sanitized import findings

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of", "ignore:compile")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_no_false_alarm(program):
    found = [f for f in findings(program) if f.severity != "advice"]
    assert [f.text() for f in found] == []
