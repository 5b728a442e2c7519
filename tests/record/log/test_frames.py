"""The log of a rank: what is put comes back, torn ends are left out, changes are found."""

from __future__ import annotations

import errno
import os

import pytest

from disttrain.errors import SerializationError
from disttrain.record.log.frames import Log, LogWriter

pytestmark = pytest.mark.simulated
KEY = bytes(range(32))


def write(path, *frames, key: bytes = KEY) -> None:
    writer = LogWriter(str(path), key)
    for meta, parts in frames:
        writer.put(meta, parts)
    writer.close()


def test_frames_come_back(tmp_path):
    big = os.urandom(9000)
    write(tmp_path / "log", ({"k": 1}, [b"ab", b"c"]), ({"k": 2}, []), ({"k": 3}, [big]))
    log = Log(str(tmp_path / "log"), KEY)
    assert [f.meta["k"] for f in log.frames] == [1, 2, 3]
    assert [bytes(log.bytes_of(f)) for f in log.frames] == [b"abc", b"", big]


def test_equal_bytes_are_kept_once(tmp_path):
    big = os.urandom(1 << 20)
    write(tmp_path / "log", *[({"i": i}, [big]) for i in range(5)])
    assert os.path.getsize(tmp_path / "log") < 2 * len(big)
    log = Log(str(tmp_path / "log"), KEY)
    assert all(bytes(log.bytes_of(f)) == big for f in log.frames)


def test_a_torn_end_is_left_out_at_every_byte(tmp_path):
    path = tmp_path / "log"
    write(path, ({"k": 1}, [b"abc"]), ({"k": 2}, [b"defg"]))
    data = path.read_bytes()
    for size in range(0, len(data), 3):
        path.write_bytes(data[:size])
        log = Log(str(path), KEY)
        assert len(log.frames) < 2
        assert all(bytes(log.bytes_of(f)) == b"abc" for f in log.frames)


def test_every_change_is_found(tmp_path):
    path = tmp_path / "log"
    write(path, ({"k": 1}, [b"abc"]), ({"k": 2}, [b"x" * 5000]), ({"k": 3}, [b"x" * 5000]))
    data = path.read_bytes()
    for at in range(0, len(data), 37):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        log = Log(str(path), KEY)
        if len(log.frames) == 3:
            with pytest.raises(SerializationError, match="not what was recorded"):
                [log.bytes_of(f) for f in log.frames]


def test_frames_of_another_place_or_key_are_found(tmp_path):
    path = tmp_path / "log"
    write(path, ({"k": 1}, []), ({"k": 1}, []), ({"k": 1}, []))
    data = path.read_bytes()
    third = len(data) // 3
    path.write_bytes(data[:third] + data[2 * third :])  # one is left out
    log = Log(str(path), KEY)
    log.check(log.frames[0])
    assert len(log.frames) == 1
    write(path, ({"k": 1}, []), key=b"")
    with pytest.raises(SerializationError):
        Log(str(path), KEY).check(Log(str(path), KEY).frames[0])
    assert Log(str(path), KEY, sealed=False).frames


def test_nothing_is_a_log_without_frames(tmp_path):
    (tmp_path / "log").write_bytes(b"")
    assert not Log(str(tmp_path / "log"), KEY).frames
    (tmp_path / "log").write_bytes(os.urandom(500))
    assert not Log(str(tmp_path / "log"), KEY).frames


def test_a_full_disk_ends_the_log_and_not_the_run(tmp_path, monkeypatch):
    writer = LogWriter(str(tmp_path / "log"), KEY)

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    said = []
    monkeypatch.setattr("disttrain.record.log.frames.warn", said.append)
    monkeypatch.setattr(os, "write", full)
    writer.put({"k": 1})
    writer.flush()
    monkeypatch.undo()
    writer.put({"k": 2})
    writer.close()
    assert not Log(str(tmp_path / "log"), KEY).frames and "not all is recorded" in said[0]


def test_a_fork_writes_nothing(tmp_path):
    writer = LogWriter(str(tmp_path / "log"), KEY)
    writer._pid += 1  # as it is in a child
    assert writer.put({"k": 1}) == -1
    writer._pid -= 1
    writer.close()
    assert not Log(str(tmp_path / "log"), KEY).frames


@pytest.mark.parametrize(
    "sizes", [[0], [1], [1023, 1], [1024], [1000, 24, 3000], [5000, 7, 1 << 17]]
)
def test_bytes_in_parts_are_the_same_as_in_one(tmp_path, sizes):
    parts = [os.urandom(n) for n in sizes]
    write(tmp_path / "log", ({"k": 1}, parts), ({"k": 2}, [b"".join(parts)]))
    log = Log(str(tmp_path / "log"), KEY)
    assert [bytes(log.bytes_of(f)) for f in log.frames] == [b"".join(parts)] * 2
    assert (log.frames[1].where == log.frames[0].where) == (sum(sizes) >= 1 << 12)
