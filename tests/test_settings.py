"""The page of environment variables says what is declared; values are heard as they are."""

from __future__ import annotations

from disttrain import settings
from disttrain_launcher.options import environment
from support.pages import ROOT

DECLARED = settings.TABLE + environment.TABLE


def test_the_page_is_the_table():
    page = (ROOT / "docs" / "environment.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.split("\n") if line.startswith("| `")]
    declared = [
        [f"`{one.name}`", f"`{one.default}`" if one.default else "unset", one.who, one.meaning]
        for one in DECLARED
    ]
    assert rows == declared


def test_a_name_is_declared_once():
    names = [one.name for one in DECLARED]
    assert len(names) == len(set(names))


def test_a_flag_is_off_for_nothing_and_zero():
    heard = {
        text: settings.STRICT.flag({settings.STRICT.name: text}) for text in ("", "0", "1", "no")
    }
    assert heard == {"": False, "0": False, "1": True, "no": True}
    assert not settings.STRICT.flag({})


def test_it_is_read_when_it_is_asked_for(monkeypatch):
    monkeypatch.delenv(settings.NCCL_CHECK.name, raising=False)
    assert settings.NCCL_CHECK.said() is None and settings.NCCL_CHECK.text() == "beside"
    monkeypatch.setenv(settings.NCCL_CHECK.name, "before")
    assert settings.NCCL_CHECK.said() == settings.NCCL_CHECK.text() == "before"
