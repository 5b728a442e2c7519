"""tf.io: records, examples as tensors. What is expected was recorded from TensorFlow 2.21."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disttrain.compat.tensorflow.errors import NAMES
from disttrain.compat.tensorflow.files import IO
from disttrain.compat.tensorflow.tensor import convert
from disttrain.compat.tensorflow.types import DTYPES
from disttrain.data.examples import Example

I64, F32, STRING = DTYPES["int64"], DTYPES["float32"], DTYPES["string"]
tf_io = SimpleNamespace(**IO)
DATA = bytes.fromhex(
    "0a340a160a016112111a0f0a0d01feffffffffffffffff01ac020a0d0a0162120812060a040000c03f0a0b0a0163"
    "12060a040a026869"
)
Fixed = IO["FixedLenFeature"]


def parsed(**features):
    return {k: v.numpy().tolist() for k, v in tf_io.parse_single_example(DATA, features).items()}


def test_examples_as_tensors():
    found = tf_io.parse_single_example(
        DATA, {"a": Fixed([3], I64), "b": Fixed([], F32), "c": Fixed([], STRING)}
    )
    assert (found["a"].numpy().tolist(), found["b"].numpy(), found["c"].numpy()) == (
        [1, -2, 300], 1.5, b"hi"
    )  # fmt: skip
    assert parsed(z=Fixed([], I64, 7)) == {"z": 7}
    sequence = IO["FixedLenSequenceFeature"]([], I64, allow_missing=True)
    assert parsed(a=sequence, q=sequence) == {"a": [1, -2, 300], "q": []}
    both = tf_io.parse_example([DATA, Example().SerializeToString()], {"a": sequence})
    assert both["a"].numpy().tolist() == [[1, -2, 300], [0, 0, 0]]


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ({"a": Fixed([2], I64)}, "Key: a.  Can't parse"),
        ({"z": Fixed([], I64)}, "Feature: z .data type: int64. is required"),
        ({"a": Fixed([3], F32)}, "Data types don't match"),
    ],
)
def test_what_does_not_fit(feature, words):
    with pytest.raises(NAMES["InvalidArgumentError"], match=words):
        tf_io.parse_single_example(DATA, feature)


def test_refusals():
    with pytest.raises(NAMES["InvalidArgumentError"], match="Could not parse"):
        tf_io.parse_single_example(b"junk\xff", {"a": Fixed([3], I64)})
    with pytest.raises(NotImplementedError, match="sparse"):
        tf_io.VarLenFeature(I64)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([1, 2], "080312041202080222080100000002000000"),
        (["a", "bc"], "080712041202080242016142026263"),
        ([[1.0, 2.0]], "08011208120208011202080222080000803f00000040"),
    ],
)
def test_tensors_as_texts(value, told):
    t = convert(value)
    data = tf_io.serialize_tensor(t)
    assert data.numpy().hex() == told
    again = tf_io.parse_tensor(data, t.dtype)
    assert again.numpy().tolist() == t.numpy().tolist()
    with pytest.raises(NAMES["InvalidArgumentError"], match="Type mismatch"):
        tf_io.parse_tensor(data, I64)


def test_writers(tmp_path):
    options = tf_io.TFRecordOptions(compression_type="GZIP")
    with tf_io.TFRecordWriter(tmp_path / "f", options) as writer:
        writer.write(DATA)
        writer.write(convert(b"x"))
    assert (tmp_path / "f").read_bytes()[:2] == b"\x1f\x8b"
