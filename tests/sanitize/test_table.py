"""The table of kinds: what is looked for by whom, and the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from disttrain.errors import ConfigError
from disttrain.sanitize.sanitizing import _CHECKS
from disttrain.sanitize.session import EVENTS
from disttrain.sanitize.table import ADVICE, KINDS, SEVERITIES, chosen

PAGE = Path(__file__).parents[2] / "docs" / "sanitizer.md"


def test_every_kind_has_a_check_and_every_check_a_kind():
    looked_for = set().union(*[kinds for _, kinds in _CHECKS])
    assert looked_for == set(KINDS)


def test_every_check_hears_of_something():
    for check, _ in _CHECKS:
        assert any(hasattr(check, event) for event in EVENTS), check


def test_the_page_shows_the_table():
    shown = [
        line for line in PAGE.read_text().splitlines() if line.startswith("| `")
    ]  # fmt: skip
    rows = [f"| `{k.name}` | {k.severity} | {k.what} | {k.fix} |" for k in KINDS.values()]
    assert [line for line in shown if line.count("|") == 5] == rows


def test_severities_are_known():
    assert {k.severity for k in KINDS.values()} == set(SEVERITIES)


def test_choosing():
    advice = {k.name for k in KINDS.values() if k.severity == ADVICE}
    assert chosen("x", "advice") == advice
    assert chosen("x", "dead-activations, growing-graph") == {"dead-activations", "growing-graph"}
    assert chosen("x", ["label-leakage"]) == {"label-leakage"}


@pytest.mark.parametrize("names", ["", "dead", "error,x", ["error", 3]])
def test_what_is_no_kind_is_refused(names):
    with pytest.raises(ConfigError, match=r"x: .* given; one of error, warning, advice or of"):
        chosen("x", names)
