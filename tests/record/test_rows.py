"""The files of a recording: what is written is read, and what is torn is left out."""

from __future__ import annotations

import errno
import os

import pytest

from disttrain.record import rows
from disttrain.record.reader import stream
from disttrain.record.rows import Measure, Writer, paths, write_about

pytestmark = pytest.mark.simulated


def write(folder, count: int, **how) -> Writer:
    writer = Writer(str(folder), 0, **how)
    for i in range(count):
        texts = tuple(writer.text(f"{what} {i % 3}") for what in ("name", "module", "site"))
        writer.put(rows.OPERATION, 0, i, (*texts, 0, 0), Measure(i, -1.0, 2.0, 9.0, 1), (7, i))
    return writer


def test_rows_come_back(tmp_path):
    write(tmp_path, 200).close()
    found = stream(str(tmp_path), 0)
    assert len(found) == 200
    last = found[199]
    assert (last.hash, last.step, last.name, last.module) == (199, 199, "name 1", "module 1")
    assert (last.inputs, last.norm, last.nans, last.shape) == ((7, 199), 3.0, 1, "")


@pytest.mark.parametrize("lost", [1, 100, 145])
def test_a_torn_end_is_left_out(tmp_path, lost):
    write(tmp_path, 100).close()
    path = paths(str(tmp_path), 0)[0]
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - lost)
    assert len(stream(str(tmp_path), 0)) == (98 if lost == 145 else 99)


def test_texts_of_any_kind_come_back(tmp_path):
    writer = Writer(str(tmp_path), 0)
    texts = ["a\nb", 'quote "', "Ümläute", "\u2028"]
    for text in texts:
        writer.put(0, 0, 0, (writer.text(text), 0, 0, 0, 0))
    writer.close()
    assert [r.name for r in stream(str(tmp_path), 0)] == texts


def test_rows_are_there_before_the_end(tmp_path):
    writer = write(tmp_path, 70)
    assert len(stream(str(tmp_path), 0)) == 64
    writer.flush()
    assert len(stream(str(tmp_path), 0)) == 70
    writer.close()


def test_a_full_disk_ends_the_recording_and_not_the_run(tmp_path, monkeypatch):
    writer = write(tmp_path, 10)

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.warns(UserWarning, match="not all is recorded"):
        writer.flush()
    monkeypatch.undo()
    writer.put(0, 0, 0, (0, 0, 0, 0, 0))
    writer.close()
    assert not stream(str(tmp_path), 0)


def test_about_is_written_whole(tmp_path):
    write_about(str(tmp_path), {"world": 3})
    assert os.listdir(tmp_path) == [rows.RECORD]


def test_what_an_earlier_run_has_left_is_removed(tmp_path):
    names = [f"rank_{r}.{kind}" for r in range(4) for kind in ("bin", "names", "data")]
    for name in (*names, "notes.txt", "rank_9.txt"):
        (tmp_path / name).write_text("")
    rows.clear(str(tmp_path), 1, 3, None)
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {n for n in names if "_3" not in n and n != "rank_1.data"} | {
        "notes.txt", "rank_9.txt"
    }  # fmt: skip
    rows.clear(str(tmp_path), 1, 3, [1])
    assert {p.name for p in tmp_path.iterdir()} == {
        "rank_1.bin", "rank_1.names", "notes.txt", "rank_9.txt"
    }  # fmt: skip
