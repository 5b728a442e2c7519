"""``disttrain replay``: what it refuses before anything runs."""

from __future__ import annotations

import pytest

from disttrain.cli import main

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize("words, said", [
    ([], "which recording"), (["none"], "is no folder"), (["."], "--record-payloads"),
    ([".", "--until", "x"], "op:NAME"), (["--bundle", "none"], "no bundle"),
])  # fmt: skip
def test_wrong_words(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["replay", *words]) == 2
    assert said in capsys.readouterr().err
