"""Files of --log-dir: a full disk loses text, and says how much; lines that are sieved."""

from __future__ import annotations

import errno
import os

import pytest

from disttrain_launcher.worker import logs
from disttrain_launcher.worker.logs import Log, Sieve, write_whole

pytestmark = pytest.mark.simulated


def test_a_log_is_added_to_and_is_its_owner_s_alone(tmp_path):
    path = str(tmp_path / "a" / "b" / "out.log")
    for text in (b"one\n", b"two\n"):
        log = Log(path)
        log.write(text)
        assert log.close() == ""
    assert (tmp_path / "a" / "b" / "out.log").read_bytes() == b"one\ntwo\n"
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(tmp_path / "a" / "b").st_mode & 0o777 == 0o700


def test_a_log_follows_no_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        Log(str(tmp_path / "link"))
    assert not (tmp_path / "elsewhere").exists()


def test_what_there_is_no_room_for_is_counted(tmp_path, monkeypatch):
    log, room = Log(str(tmp_path / "out.log")), [3, 2]

    def write(fd, data):
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data[: room.pop(0)])

    monkeypatch.setattr(logs.os, "write", write)
    log.write(b"12345678")  # 3, then 2, then a full disk
    log.write(b"abc")
    told = log.close()
    assert told == f"{log.path}: 6 bytes of output are missing: No space left on device"


class Kept:
    """A log in memory."""

    def __init__(self):
        self.text = b""

    def write(self, data):
        self.text += data


def sifted(words, *parts, prefix="[0] "):
    kept = Kept()
    sieve = Sieve(words, kept, prefix)
    for part in parts:
        sieve.take(part)
    sieve.finish()
    return kept.text


def test_lines_with_one_of_the_words_are_kept_whole():
    text = b"loss 1\nother\nwarn: x\nlossy end"
    assert sifted(["loss", "warn"], text) == b"[0] loss 1\n[0] warn: x\n[0] lossy end\n"


def test_it_does_not_matter_how_the_output_comes():
    text = b"a loss\nb\n\nloss c\n"
    whole = sifted(["loss"], text)
    assert whole == b"[0] a loss\n[0] loss c\n"
    for size in range(1, 6):
        parts = [text[i : i + size] for i in range(0, len(text), size)]
        assert sifted(["loss"], *parts) == whole


def test_a_line_without_end_is_looked_at_in_pieces(monkeypatch):
    monkeypatch.setattr(logs, "_LONGEST", 8)
    assert sifted(["loss"], b"long loss here", b"after") == b"[0] long loss here\n"


def test_words_are_found_as_their_bytes():
    assert sifted(["é"], "caf\u00e9\ncafe\n".encode(), prefix="é ") == "é café\n".encode()


def test_a_file_is_written_whole(tmp_path):
    path = str(tmp_path / "new" / "report.json")
    assert write_whole(path, "é1") == "" and write_whole(path, "é2") == ""
    assert (tmp_path / "new" / "report.json").read_text(encoding="utf-8") == "é2"
    assert os.listdir(tmp_path / "new") == ["report.json"]


def test_or_not_at_all(tmp_path, monkeypatch):
    path = str(tmp_path / "report.json")
    write_whole(path, "old")

    def full(a, b):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(logs.os, "replace", full)
    assert write_whole(path, "new") == f"{path} could not be written: No space left on device"
    assert os.listdir(tmp_path) == ["report.json"]
    assert (tmp_path / "report.json").read_text() == "old"
