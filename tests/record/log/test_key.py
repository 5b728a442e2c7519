"""The key of a user: made once, for its owner alone."""

from __future__ import annotations

import os

import pytest

from disttrain.record.log.key import SIZE, key, path

pytestmark = pytest.mark.simulated


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_it_is_made_once(home):
    assert key() == b""
    made = key(make=True)
    assert len(made) == SIZE and key() == key(make=True) == made
    assert os.stat(path()).st_mode & 0o777 == 0o600
    assert os.listdir(home / "disttrain") == ["record.key"]


def test_one_that_others_may_read_or_write_is_none(home):
    key(make=True)
    for mode in (0o644, 0o620, 0o606):
        os.chmod(path(), mode)
        assert key() == b""


def test_a_link_or_a_short_one_is_none(home):
    made = key(make=True)
    os.rename(path(), home / "other")
    os.symlink(home / "other", path())
    assert key(make=True) == b""
    os.unlink(path())
    with open(path(), "wb") as file:
        file.write(made[:-1])
    os.chmod(path(), 0o600)
    assert key() == b""


def test_without_a_place_there_is_none(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "file"))
    assert key(make=True) == b""
