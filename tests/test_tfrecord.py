"""TFRecords: as TensorFlow writes them, and what is wrong with files."""

from __future__ import annotations

import pytest

from disttrain.data.pipeline import Pipeline
from disttrain.errors import ConfigError, SerializationError
from disttrain.metrics import RecordWriter
from disttrain.tfrecord import crc32c, masked_crc32c, opened, record, records


def test_crc32c_of_the_standard():
    assert crc32c(b"\0" * 32) == 0x8A9136AA
    assert crc32c(b"456789", crc32c(b"123")) == crc32c(b"123456789") == 0xE3069283


def test_the_frame():
    """The first bytes of a record of 54 bytes, as TensorFlow 2.21 wrote it."""
    assert record(b"x" * 54)[:12].hex() == "36000000000000004f578cef"


def test_long_and_short_have_one_checksum():
    data = bytes(range(256)) * 20
    assert masked_crc32c(data) == _masked(crc32c(data))


def _masked(crc):
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_what_is_written_is_read(tmp_path, compression):
    rows = [b"", b"one\0", b"x" * 10000]
    writer = RecordWriter(opened(str(tmp_path / "f"), "wb", compression))
    for row in rows:
        writer.write(row)
    writer.close()
    path = str(tmp_path / "f")
    found = list(records(path, 0, compression))
    assert [data for data, _ in found] == rows
    assert [data for data, _ in records(path, found[0][1], compression)] == rows[1:]
    assert list(Pipeline.tfrecords([path, path], compression)) == rows * 2


def test_damage_is_told(tmp_path):
    path = tmp_path / "f"
    whole = record(b"abc") + record(b"defg")
    for data, word in (
        (whole[:-1], "truncated record at byte 19"), (whole[:25], "truncated record at byte 19"),
        (b"\1" + whole[1:], "corrupted record at byte 0"),
        (whole[:13] + b"?" + whole[14:], "checksum"),
    ):  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(SerializationError, match=word):
            list(records(str(path)))
    with pytest.raises(ConfigError, match="'GZIP' and 'ZLIB'"):
        list(records(str(path), 0, "LZ4"))
