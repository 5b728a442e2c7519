"""The verifier that jobs on etcd are held against finds what it is there to find."""

from __future__ import annotations

import pytest

from support.stepping import Note, longest_gap, notes_of, verify


def notes(*lines: str) -> list[Note]:
    """Of lines "generation step rank/world at"."""
    found = []
    for line in lines:
        generation, step, place, at = line.split()
        rank, world = place.split("/")
        found.append(Note(int(generation), int(step), int(rank), int(world), float(at), float(at)))
    return found


GOOD = ["1 1 0/2 1.0", "1 1 1/2 1.1", "1 2 0/2 1.2", "1 2 1/2 1.3"]


def test_a_job_that_went_well():
    rest = ["1 3 0/2 1.4", "3 3 0/1 2.0", "3 4 0/1 2.1"]  # nobody committed the first 3
    assert verify(notes(*GOOD, *rest)) == {1: (1, 2), 3: (3, 4)}
    assert longest_gap(notes(*GOOD, *rest), since=1.3) == pytest.approx(0.6)
    assert verify([]) == {}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2 3 0/1 1.25", "at the same time"),
        ("2 2 0/1 2.0", "2: 2 and 1"),
        ("1 2 1/2 1.4", "noted twice"),
        ("1 3 0/1 1.4", "of two sizes"),
        ("2 0 0/1 2.0", "step 2 was lost"),
    ],
)
def test_what_must_not_be_is_found(line, words):
    with pytest.raises(AssertionError, match=words):
        verify(notes(*GOOD, line))


def test_a_line_that_is_being_written_is_none(tmp_path):
    (tmp_path / "steps.0").write_text("1 1 0 1 5.0 5.0\n1 2 0 1 6.")
    assert notes_of([tmp_path]) == notes("1 1 0/1 5.0")
