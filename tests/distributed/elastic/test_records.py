"""``record``: what is written of an exception that leaves the main function."""

from __future__ import annotations

import json
import sys

import pytest

from disttrain.distributed.elastic.records import record

FILE = "TORCHELASTIC_ERROR_FILE"


@record
def fails():
    raise KeyError("lost")


def test_an_exception_is_written_and_raised(tmp_path, monkeypatch):
    path = tmp_path / "new" / "error.json"
    monkeypatch.setenv(FILE, str(path))
    with pytest.raises(KeyError):
        fails()
    message = json.loads(path.read_text())["message"]
    assert message["message"] == "KeyError: 'lost'"
    assert "in fails" in message["extraInfo"]["py_callstack"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_hides_no_error(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    monkeypatch.setenv(FILE, str(tmp_path / "link"))
    with pytest.raises(KeyError):
        fails()
    assert not (tmp_path / "target").exists()


def test_without_a_name_nothing_is_written(monkeypatch):
    monkeypatch.delenv(FILE, raising=False)
    with pytest.raises(KeyError):
        fails()


def test_an_exit_without_a_fault_is_a_return(tmp_path, monkeypatch):
    monkeypatch.setenv(FILE, str(tmp_path / "error.json"))
    assert record(sys.exit)(0) is None
    with pytest.raises(SystemExit):
        record(sys.exit)(3)
    assert not (tmp_path / "error.json").exists()
    assert record(int)("7") == 7


def test_a_handler_of_the_program_is_asked_instead():
    seen = []

    class Handler:
        def initialize(self):
            seen.append("ready")

        def record_exception(self, error):
            seen.append(str(error))

    with pytest.raises(ValueError, match="x"):
        record(int, Handler())("x")
    assert seen[0] == "ready" and "'x'" in seen[1]
