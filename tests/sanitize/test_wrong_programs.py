"""Mistakes are found in whichever way a program makes them."""

from __future__ import annotations

import pytest

from disttrain.sanitize.places import NOWHERE
from support import sanitized, wrong_programs
from support.sanitized import findings

pytestmark = pytest.mark.filterwarnings("ignore:compile")
_FILES = (wrong_programs.__file__, sanitized.__file__)


@pytest.mark.parametrize(
    "kind, program", wrong_programs.PROGRAMS, ids=lambda p: getattr(p, "__name__", p)
)
def test_one_finding(kind, program):
    found = findings(program)
    assert [f.kind for f in found] == [kind], [f.text() for f in found]
    assert found[0].place == NOWHERE or found[0].place.file in _FILES
