"""Event files: read back by TensorBoard itself, and by an independent reader of the format."""

from __future__ import annotations

import math
import struct

import pytest

from disttrain.errors import ConfigError
from disttrain.metrics import EventWriter, FileWriter, RecordWriter, summaries
from disttrain.protobuf import double, integer, nested
from disttrain.tfrecord import crc32c, masked_crc32c


# RFC 3720, appendix B.4, and the check value of the CRC catalogue.
@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_crc32c_of_the_standard(data, crc):
    assert crc32c(data) == crc
    assert crc32c(data[3:], crc32c(data[:3])) == crc


def records(path) -> list[bytes]:
    """The payloads of a TFRecord file; every checksum is compared."""
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack_from("<Q", data)
        assert struct.unpack_from("<I", data, 8)[0] == masked_crc32c(data[:8])
        payload = data[12 : 12 + length]
        assert len(payload) == length
        assert struct.unpack_from("<I", data, 12 + length)[0] == masked_crc32c(payload)
        found.append(payload)
        data = data[16 + length :]
    return found


def message(data: bytes) -> dict[int, list]:
    """A protobuf message as field number -> raw values."""
    fields: dict[int, list] = {}

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    at = 0
    while at < len(data):
        key = varint()
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            value: object = varint()
        else:
            size = varint() if size is None else size
            value, at = data[at : at + size], at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def test_own_reader_finds_what_was_written(tmp_path):
    with EventWriter(tmp_path, purge_step=5) as writer:
        writer.scalars({"loss": 0.25, "ü": -1.0}, 300)
        writer.scalar("huge", 1e300, 2**40)
        writer.text("config", "a = 1")
    first, start, scalars, huge, text = (message(r) for r in records(writer.path))
    assert first[3] == [b"brain.Event:2"] and len(first[1][0]) == 8
    assert start[2] == [5] and message(start[7][0]) == {1: [1]}
    values = [message(v) for v in message(scalars[5][0])[1]]
    assert scalars[2] == [300]
    assert [v[1][0].decode() for v in values] == ["loss", "ü"]
    assert [struct.unpack("<f", v[2][0])[0] for v in values] == [0.25, -1.0]
    (value,) = message(huge[5][0])[1]
    assert huge[2] == [2**40] and math.isinf(struct.unpack("<f", message(value)[2][0])[0])
    (value,) = message(text[5][0])[1]
    tensor = message(message(value)[8][0])
    assert message(value)[1] == [b"config/text_summary"]
    assert tensor[1] == [7] and tensor[8] == [b"a = 1"]


def test_tensorboard_reads_it(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as reader

    with EventWriter(tmp_path) as writer:
        for step in range(10):
            writer.scalars({"train/loss": 1 / (step + 1), "train/lr": 0.1 * step}, step)
        writer.text("config", "lr = **0.1**", 0)
    with EventWriter(tmp_path, purge_step=8) as writer:
        writer.scalar("train/loss", 7.0, 8)
    found = reader.EventAccumulator(str(tmp_path)).Reload()
    losses = [(e.step, e.value) for e in found.Scalars("train/loss")]
    assert [step for step, _ in losses] == list(range(9))
    assert losses[1][1] == 0.5 and losses[8][1] == 7.0
    assert len(found.Scalars("train/lr")) == 8
    (event,) = found.Tensors("config/text_summary")
    assert event.tensor_proto.string_val[0] == b"lr = **0.1**"
    assert found.SummaryMetadata("config/text_summary").plugin_data.plugin_name == "text"


def test_two_writers_of_one_second_do_not_share_a_file(tmp_path):
    with EventWriter(tmp_path) as one, EventWriter(tmp_path) as two:
        assert one.path != two.path
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2


def test_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        EventWriter(tmp_path / "file")


class Message:
    """Stands for one of TensorBoard's own."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def SerializeToString(self) -> bytes:  # noqa: N802  (protobuf's name)
        if hasattr(self, "wall_time"):
            return double(1, self.wall_time) + integer(2, self.step) + self.body
        return self.body


def test_messages_of_tensorboard_are_written(tmp_path):
    writer = FileWriter(tmp_path, filename_suffix=".x")
    assert writer.get_logdir() == str(tmp_path)
    writer.add_summary(Message(summaries.scalar("a", 1.5)), 3)
    writer.add_event(Message(nested(5, summaries.scalar("b", 2.5))), step=4, walltime=5.0)
    writer.add_graph((Message(b"graph"), Message(b"steps")))
    writer.add_onnx_graph(Message(b"onnx"))
    writer.flush()
    writer.reopen()
    writer.add_summary(summaries.scalar("c", 1.0))
    with pytest.raises(TypeError, match="a protobuf message"):
        writer.add_summary("text")
    writer.close()
    first, second = sorted(tmp_path.iterdir())
    found = [message(r) for r in records(first)]
    assert [m.get(2, [None])[0] for m in found[1:3]] == [3, 4]
    assert found[2][1] == [struct.pack("<d", 5.0)] or found[2][1] == [5.0]
    assert [m[4][0] for m in (found[3], found[5])] == [b"graph", b"onnx"]
    assert len(records(second)) == 2


def test_records_go_to_any_file(tmp_path):
    path = tmp_path / "r"
    with RecordWriter(path.open("wb")) as writer:
        writer.write(b"one")
        writer.write(b"")
        writer.flush()
        assert not writer.closed
    assert writer.closed
    assert records(path) == [b"one", b""]
