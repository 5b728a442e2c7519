"""tf.summary: events in files."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from disttrain import protobuf
from disttrain.compat.tensorflow.files import SUMMARY as NAMED
from disttrain.compat.tensorflow.files import SUMMARY_EXPERIMENTAL as EXPERIMENTAL
from disttrain.compat.tensorflow.tensor import convert
from disttrain.tfrecord import records

tf, experimental = SimpleNamespace(**NAMED), SimpleNamespace(**EXPERIMENTAL)


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
    writer = tf.create_file_writer(tmp_path)
    with writer.as_default(step=2):
        assert tf.scalar("loss", convert(0.5))
        assert tf.histogram("h", np.arange(5.0), step=3)
        assert tf.image("i", np.zeros((2, 4, 4, 3), np.float32))
        assert tf.text("t", "words") and tf.write("raw", [1, 2])
        with experimental.summary_scope("inner"):
            tf.scalar("x", 1)
        with tf.record_if(False):
            assert not tf.scalar("no", 1)
    writer.close()
    assert not tf.scalar("outside", 1, step=1)
    assert tags(tmp_path) == [
        (2, "loss"), (3, "h"), (2, "i"), (2, "i/1"), (2, "t/text_summary"), (2, "raw"),
        (2, "inner/x"),
    ]  # fmt: skip


def test_a_step_is_needed(tmp_path):
    writer = tf.create_file_writer(tmp_path)
    with writer.as_default(), pytest.raises(ValueError, match="No step set"):
        tf.scalar("loss", 1)
    with tf.create_noop_writer().as_default(step=1):
        assert not tf.scalar("loss", 1)
    with pytest.raises(ValueError, match="cannot be None"):
        tf.create_file_writer(None)
    writer.close()
