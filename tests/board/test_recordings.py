"""The page of recordings: what it finds, compares and escapes."""

from __future__ import annotations

import pytest

from disttrain.board.recordings import document, find_recordings
from support.recordings import train

pytestmark = pytest.mark.simulated


def test_recordings_are_found_and_chosen(tmp_path):
    assert "There are none here" in document(tmp_path)
    train(tmp_path / "deep" / "a", "modules", steps=1)
    train(tmp_path / "b&<c>", "modules", steps=1)
    assert sorted(find_recordings(tmp_path)) == ["b&<c>", "deep/a"]
    (tmp_path / "a\udcff").mkdir()
    (tmp_path / "a\udcff" / "record.json").write_text("{}")
    page = document(tmp_path)
    assert "/diff?a=b%26%3Cc%3E" in page and "b&amp;&lt;c&gt;" in page and "<c>" not in page
    assert "deep/a with" in document(tmp_path, "deep/a")


def test_two_are_compared(tmp_path):
    train(tmp_path / "a", "modules", steps=1)
    train(tmp_path / "b", "modules", steps=1, p=0.5)
    page = document(tmp_path, "a", "b")
    assert 'class="answer">step 0, rank 0, module Net.drop: the output of Dropout differs' in page
    assert page.count('class="differs"') >= 2
    assert "has one rank" in document(tmp_path, "b", "b")


def test_a_name_is_never_made_a_path(tmp_path):
    train(tmp_path / "in" / "a", "modules", steps=1)
    train(tmp_path / "out", "modules", steps=1)
    assert "Which one first?" in document(tmp_path / "in", "../out", "../out")


def test_damaged_ones_are_said(tmp_path):
    train(tmp_path / "a", "modules", steps=1)
    train(tmp_path / "b", "modules", steps=1)
    (tmp_path / "b" / "record.json").write_text("{")
    assert "no recording" in document(tmp_path, "a", "b")
