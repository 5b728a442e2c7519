"""tf.summary: events in files."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import protobuf
from disttrain.compat.tensorflow import summary
from disttrain.compat.tensorflow.tensor import convert
from disttrain.tfrecord import records


def tags(folder):
    """(step, tag) of the events of a folder."""
    (path,) = folder.iterdir()
    found = []
    for data, _ in records(str(path)):
        event = dict(protobuf.fields(data))
        for _, value in protobuf.fields(event.get(5, b"")):
            found.append((event.get(2, 0), dict(protobuf.fields(value))[1].decode()))
    return found


def test_what_is_said_is_written(tmp_path):
    writer = summary.create_file_writer(tmp_path)
    with writer.as_default(step=2):
        assert summary.scalar("loss", convert(0.5))
        assert summary.histogram("h", np.arange(5.0), step=3)
        assert summary.image("i", np.zeros((2, 4, 4, 3), np.float32))
        assert summary.text("t", "words") and summary.write("raw", [1, 2])
        with summary.summary_scope("inner"):
            summary.scalar("x", 1)
        with summary.record_if(False):
            assert not summary.scalar("no", 1)
    writer.close()
    assert not summary.scalar("outside", 1, step=1)
    assert tags(tmp_path) == [
        (2, "loss"), (3, "h"), (2, "i"), (2, "i/1"), (2, "t/text_summary"), (2, "raw"),
        (2, "inner/x"),
    ]  # fmt: skip


def test_a_step_is_needed(tmp_path):
    writer = summary.create_file_writer(tmp_path)
    with writer.as_default(), pytest.raises(ValueError, match="No step set"):
        summary.scalar("loss", 1)
    with summary.create_noop_writer().as_default(step=1):
        assert not summary.scalar("loss", 1)
    with pytest.raises(ValueError, match="cannot be None"):
        summary.create_file_writer(None)
    writer.close()
