"""Files that a program has open: written before a fork, and at the end of a rank."""

from __future__ import annotations

import gzip
import io
import os
import zipfile

import pytest

from disttrain_launcher.worker import open_files

pytestmark = pytest.mark.simulated


@pytest.fixture
def only(monkeypatch):
    """Let the module see only what the test names: other files of this process are not its own."""

    def see(*objects):
        monkeypatch.setattr(open_files.gc, "get_objects", lambda: list(objects))

    return see


def test_text_and_bytes_in_buffers_are_written(tmp_path, only):
    text, data = open(tmp_path / "a", "w"), open(tmp_path / "b", "wb")
    text.write("text")
    data.write(b"data")
    only(data, text, text.buffer, "no file", 3)
    open_files.write()
    assert (tmp_path / "a").read_text() == "text" and (tmp_path / "b").read_bytes() == b"data"
    assert not text.closed and not data.closed
    text.close(), data.close()


def test_what_packs_is_closed_after_what_writes_into_it(tmp_path, only):
    packed = gzip.open(tmp_path / "a.gz", "wb")
    text = io.TextIOWrapper(packed)
    text.write("in the buffer of the text")
    archive = zipfile.ZipFile(tmp_path / "b.zip", "w")
    archive.writestr("name", "value")
    below = archive.fp
    only(below, archive, packed, text)
    open_files.write()
    with gzip.open(tmp_path / "a.gz", "rt") as file:
        assert file.read() == "in the buffer of the text"
    with zipfile.ZipFile(tmp_path / "b.zip") as file:
        assert file.read("name") == b"value"


def test_files_that_were_closed_are_left_alone(tmp_path, only, capsys):
    file = open(tmp_path / "a", "w")
    file.close()
    only(file)
    open_files.write()
    assert capsys.readouterr().err == ""


def test_an_error_is_said_and_the_others_are_written(tmp_path, only, capsys):
    broken, good = open(tmp_path / "broken", "w"), open(tmp_path / "good", "w")
    broken.write("lost"), good.write("kept")
    os.close(broken.fileno())
    only(broken, good)
    open_files.write()
    assert (tmp_path / "good").read_text() == "kept"
    told = capsys.readouterr().err
    assert f"{tmp_path}/broken was left open, and not all of it written" in told
    with pytest.raises(OSError):
        broken.close()
    good.close()


def test_before_a_fork_only_files_on_disk_are_written(tmp_path, only):
    file, read_only = open(tmp_path / "a", "w"), open(__file__)
    reader, writer = os.pipe()
    pipe = os.fdopen(writer, "w")
    file.write("text"), pipe.write("stays")
    only(file, file.buffer, pipe, read_only, io.StringIO())
    found = open_files.settle()
    assert set(map(id, found)) == {id(file), id(file.buffer)}
    assert (tmp_path / "a").read_text() == "text"
    os.set_blocking(reader, False)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    for one in (file, read_only, pipe):
        one.close()
    os.close(reader)


def test_text_goes_before_the_bytes_below_it_and_an_owner_s_error_is_passed_over():
    order = []

    class Text(io.TextIOBase):
        def flush(self):
            order.append("text")

    class Below(io.RawIOBase):
        def flush(self):
            if order and order[-1] != "closed":
                order.append("bytes")

    class Closed(io.RawIOBase):
        def flush(self):
            raise ValueError("I/O operation on closed file")

        def close(self):
            pass

    open_files.flush([Below(), Closed(), Text()])
    assert order[:2] == ["text", "bytes"]
