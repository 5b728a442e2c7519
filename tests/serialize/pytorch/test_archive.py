"""Records of an archive: where they lie is proved before they are read."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

from disttrain.errors import SerializationError
from disttrain.serialize.pytorch.archive import Archive, Bytes


def zipped(records, folder="archive/", how=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as file:
        for name, data in records:
            file.writestr(folder + name, data)
    return np.frombuffer(bytearray(out.getvalue()), np.uint8)


RECORDS = [("data.pkl", b"."), ("data/0", b"12345678"), ("version", b"3\n")]


@pytest.mark.parametrize("folder", ["archive/", "my model/"])
def test_records_are_views_of_the_file(folder):
    data = zipped(RECORDS, folder)
    archive = Archive(data, "load: x", True)
    record = archive.read("data/0")
    assert bytes(record) == b"12345678" and np.shares_memory(record, data)
    assert "version" in archive and "data/1" not in archive
    with pytest.raises(SerializationError, match=r"load: x: record 'data/1' is missing"):
        archive.read("data/1")


def test_what_a_checksum_finds():
    data = zipped(RECORDS)
    at = bytes(data).index(b"12345678")
    data[at] ^= 1
    with pytest.raises(SerializationError, match="does not fit its checksum"):
        Archive(data, "f", True).read("data/0")
    assert Archive(data, "f", False).read("data/0")[0] == ord("1") ^ 1


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_no_writer_writes_is_refused():
    with pytest.raises(SerializationError, match="compressed"):
        Archive(zipped(RECORDS, how=zipfile.ZIP_DEFLATED), "f", True)
    with pytest.raises(SerializationError, match="two records"):
        Archive(zipped([*RECORDS, ("data/0", b"")]), "f", True)
    with pytest.raises(SerializationError, match="holds code"):
        Archive(zipped([*RECORDS, ("constants.pkl", b"")]), "f", True)


def test_claims_beyond_the_file():
    data = zipped(RECORDS)
    entry = bytes(data).rindex(b"PK\x01\x02", 0, bytes(data).rindex(b"version"))
    for size in (1 << 20, 0xFFFFFFF0):
        claimed = data.copy()
        claimed[entry + 20 : entry + 28] = np.frombuffer(struct.pack("<II", size, size), np.uint8)
        with pytest.raises(SerializationError, match=r"claim more bytes|damaged zip"):
            Archive(claimed, "f", True).read("version")
    moved = data.copy()
    moved[entry + 42 : entry + 46] = np.frombuffer(struct.pack("<I", 7), np.uint8)
    with pytest.raises(SerializationError, match=r"has no head|damaged zip"):
        Archive(moved, "f", True).read("version")
    with pytest.raises(SerializationError, match="damaged zip"):
        Archive(data[: data.size // 2].copy(), "f", True)


def test_another_program_s_archive_has_no_records():
    assert "a.npy" not in Archive(zipped([("a.npy", b"1")], ""), "f", True)


def test_bytes_as_a_file():
    data = np.frombuffer(b"one\n" + b"x" * 600 + b"\nend", np.uint8)
    file = Bytes(data)
    assert file.readline() == b"one\n" and file.readline() == b"x" * 600 + b"\n"
    assert file.tell() == 605 and file.read(1 << 62) == b"end" and file.read() == b""
    assert file.readline() == b"" and file.seek(-3, 2) == 605 and file.readline() == b"end"
