"""Examples: the bytes that TensorFlow writes, and reads."""

from __future__ import annotations

import pytest

from disttrain.data.examples import (
    BytesList,
    Example,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    SequenceExample,
)  # fmt: skip
from disttrain.errors import SerializationError

# What TensorFlow 2.21 serializes deterministically for ``made()``.
RECORDED = (
    "0a340a160a016112111a0f0a0d01feffffffffffffffff01ac020a0d0a0162120812060a040000c03f0a0b0a0163"
    "12060a040a026869"
)


def made():
    return Example(
        features=Features(
            feature={
                "a": Feature(int64_list=Int64List(value=[1, -2, 300])),
                "b": Feature(float_list=FloatList(value=[1.5])),
                "c": Feature(bytes_list=BytesList(value=[b"hi"])),
            }
        )
    )


def test_bytes_are_tensorflows():
    assert made().SerializeToString(deterministic=True).hex() == RECORDED
    again = Example.FromString(bytes.fromhex(RECORDED))
    assert again == made() and again != Example()
    feature = again.features.feature
    assert feature["a"].int64_list.value == [1, -2, 300]
    assert feature["b"].float_list.value == [1.5] and feature["b"].bytes_list.value == []
    assert feature["c"].WhichOneof("kind") == "bytes_list" and feature["c"].HasField("bytes_list")


def test_text():
    assert str(Example(Features({"k": Feature(bytes_list=BytesList([b'a"']))}))) == (
        'features {\n  feature {\n    key: "k"\n    value {\n      bytes_list {\n'
        '        value: "a""\n      }\n    }\n  }\n}\n'
    )


def test_sequences():
    steps = FeatureList([Feature(int64_list=Int64List([i])) for i in range(3)])
    example = SequenceExample(
        Features({"n": Feature(int64_list=Int64List([3]))}), FeatureLists({"steps": steps})
    )
    again = SequenceExample.FromString(example.SerializeToString())
    found = again.feature_lists.feature_list["steps"].feature
    assert [f.int64_list.value for f in found] == [[0], [1], [2]]
    assert again.context.feature["n"].int64_list.value == [3]


def test_wrong_values_and_bytes():
    with pytest.raises(TypeError, match="expected one of: bytes"):
        BytesList(["text"])
    with pytest.raises(TypeError, match="expected one of: int"):
        Int64List([1.5])
    with pytest.raises(ValueError, match='no "other" field'):
        Feature(other=1)
    with pytest.raises(SerializationError):
        Example.FromString(bytes.fromhex(RECORDED)[:-3])
