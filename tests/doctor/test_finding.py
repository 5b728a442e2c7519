"""Findings, and how probes ask."""

from __future__ import annotations

import pytest

from disttrain.doctor import finding


def test_probes_that_fail_are_findings():
    def _of_things():
        yield finding.ok("G", "a", "1")
        raise OSError("gone")

    assert finding.guarded(lambda: iter([finding.ok("G", "a", "1")])) == [
        finding.Finding("G", "a", "ok", "1")
    ]
    (found,) = finding.guarded(_of_things)
    assert (found.name, found.state, found.value) == ("of things", "problem", "OSError: gone")


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (3 << 20, "3 MiB"), (3 << 29, "1.5 GiB")],
)
def test_sizes(num_bytes, text):
    assert finding.size(num_bytes) == text


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo one; echo two", "one"), ("echo; echo ' x '", "x"), ("echo bad >&2; exit 1", "bad"),
        ("exit 3", "ended with code 3 and no word"), ("true", ""), ("kill -9 $$", "code -9"),
    ],
)  # fmt: skip
def test_the_line_that_a_command_says(script, text):
    assert text in finding.first_line(["sh", "-c", script])


def test_the_last_line():
    assert finding.first_line(["sh", "-c", "echo one; echo two"], last=True) == "two"
    assert "No such file" in finding.first_line(["/no/such/program"])


def test_what_is_not_there(tmp_path):
    assert finding.version("no-such-package-here") is None
    assert finding.version("numpy")
    assert not finding.library("libnosuchthing.so")
    assert finding.read(str(tmp_path / "none")) == ""
