"""The bytes of GGUF files: values of all types, and what is damaged or hostile."""

from __future__ import annotations

import random
import struct

import gguf
import numpy as np
import pytest

from disttrain.errors import ConfigError, SerializationError
from disttrain.serialize.gguf.blocks import KINDS
from disttrain.serialize.gguf.layout import build, parse

VALUES = {
    "general.architecture": "gpt2", "a.text": "ü\n", "a.empty": "",
    "a.count": 7, "a.negative": -7, "a.large": 1 << 40, "a.most": (1 << 64) - 1,
    "a.least": -(1 << 63), "a.factor": 0.5, "a.yes": True, "a.no": False,
    "a.byte": np.uint8(3), "a.short": np.int16(-3), "a.double": np.float64(0.1),
    "a.texts": ["x", "", "é"], "a.counts": [1, 2, -3], "a.longs": [1 << 40, 1],
    "a.huge": 1e300, "a.infinite": float("inf"), "a.mixed": [0.5, 1e300],
    "a.factors": [0.5, 0.25], "a.flags": [True, False], "a.nothing": [],
    "a.array": np.arange(5, dtype=np.uint16), "a.lists": [[1, 2], [3]],
}  # fmt: skip


def written(values=VALUES, tensors=None):
    """A file with zeros as data."""
    tensors = {"w": (KINDS["F32"], (2, 3)), "q": (KINDS["Q8_0"], (4, 32))} if tensors is None else (
        tensors)  # fmt: skip
    head, padding = build(values, tensors)
    data = [bytes(k.num_bytes(shape) + pad) for (k, shape), pad in zip(tensors.values(), padding)]
    return head + b"".join(data)


def test_values_and_places_come_back():
    raw = written()
    metadata, entries = parse(memoryview(raw), "f")
    for key, value in VALUES.items():
        assert metadata[key] == (value.tolist() if hasattr(value, "tolist") else value), key
    assert type(metadata["a.yes"]) is bool and type(metadata["a.count"]) is int
    w, q = entries
    assert (w.name, w.shape, w.kind.name, w.end - w.begin) == ("w", (2, 3), "F32", 24)
    assert (q.name, q.shape, q.kind.name, q.begin) == ("q", (4, 32), "Q8_0", w.begin + 32)
    assert w.begin % 32 == 0 and q.end == len(raw) - 24


def test_the_package_reads_the_same(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(written({k: v for k, v in VALUES.items() if k != "a.lists"}))
    reader = gguf.GGUFReader(path)
    for key, value in VALUES.items():
        if key != "a.lists" and key != "a.nothing":
            found = reader.get_field(key).contents()
            assert found == (value.tolist() if hasattr(value, "tolist") else value), key
    assert [(t.name, list(t.shape)) for t in reader.tensors] == [("w", [3, 2]), ("q", [32, 4])]
    assert reader.get_field("a.count").types == [gguf.GGUFValueType.UINT32]
    assert reader.get_field("a.factor").types == [gguf.GGUFValueType.FLOAT32]


def test_alignment_is_followed():
    values = {"general.alignment": 64}
    raw = written(values, dict.fromkeys("abc", (KINDS["F32"], (1,))))
    assert [e.begin % 64 for e in parse(memoryview(raw), "f")[1]] == [0, 0, 0]


@pytest.mark.parametrize(
    "values, tensors, said",
    [
        ({"a": object()}, {}, "'a' is object"),
        ({"a": 1 << 64}, {}, "at most 64 bits"),
        ({"a": None}, {}, "NoneType"),
        ({3: 1}, {}, "3 is no text"),
        ({"a": "\udcff"}, {}, "is no text"),
        ({"a": [1, "x"]}, {}, "'a' is str|one type"),
        ({"a": [1, 0.5]}, {}, "list of one type"),
        ({"general.alignment": 3}, {}, "power of two"),
        ({}, {"n" * 64: (KINDS["F32"], (1,))}, "1 to 63 bytes"),
        ({}, {"w": (KINDS["F32"], (1,) * 5)}, "up to 4 sizes"),
        ({}, {"w": (KINDS["F32"], (0, 2))}, "sizes above 0"),
    ],
)
def test_what_cannot_be_written(values, tensors, said):
    with pytest.raises((ConfigError, SerializationError), match=said):
        build(values, tensors)


def head(*parts, tensors=0, keys=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + b"".join(parts)


def text(word):
    return struct.pack("<Q", len(word)) + word


def tensor(name=b"w", shape=(2,), code=0, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, code, offset)


def key(name, code, rest=b""):
    return text(name) + struct.pack("<I", code) + rest


MANY = struct.pack("<Q", 1 << 60)
HOSTILE = {
    "no file": (b"", "no GGUF file"),
    "cut short": (b"GGUF\x03", "the version should have 4 bytes"),
    "another kind": (b"PK\x03\x04" + bytes(99), "no GGUF file"),
    "version 1": (head(version=1), "version 1"),
    "big-endian": (b"GGUF\0\0\0\x03" + bytes(16), "little-endian"),
    "many tensors": (head(tensors=1 << 60), "tensors; at most"),
    "many keys": (head(keys=1 << 60), "keys; at most"),
    "missing keys": (head(keys=3), "a key should have"),
    "a long key": (head(MANY, keys=1), "a key should have"),
    "no UTF-8": (head(key(b"\xff", 4), keys=1), "no UTF-8"),
    "the same key": (head(key(b"a", 4, bytes(4)) * 2, keys=2), "stands twice"),
    "unknown type": (head(key(b"a", 77), keys=1), "value of type 77"),
    "a truth value": (head(key(b"a", 7, b"\x02"), keys=1), "truth value is 2"),
    "truth values": (head(key(b"a", 9, struct.pack("<IQ", 7, 1) + b"\x02"), keys=1), "neither 0"),
    "a long list": (head(key(b"a", 9, struct.pack("<I", 4) + MANY), keys=1), "at most"),
    "a list of much": (
        head(key(b"a", 9, struct.pack("<IQ", 8, 1 << 22)), keys=1), "should have 8 bytes"
    ),
    "lists in lists": (
        head(key(b"a", 9, struct.pack("<IQ", 9, 1) * 9), keys=1), "lists deep"
    ),
    "many dimensions": (head(tensor(shape=(1,) * 5), tensors=1), "5 dimensions"),
    "a huge shape": (head(tensor(shape=(1 << 62, 1 << 62)), tensors=1), "cannot be of F32"),
    "no whole blocks": (head(tensor(shape=(31,), code=8), tensors=1), "cannot be of Q8_0"),
    "a type of ours not": (head(tensor(code=12), tensors=1), "the type 12"),
    "no multiple": (head(tensor(offset=4), tensors=1) + bytes(99), "no multiple of 32"),
    "behind the end": (head(tensor(offset=1 << 40), tensors=1) + bytes(99), "ends at byte"),
    "overlap": (
        head(tensor(b"a", (99,)), tensor(b"b", offset=32), tensors=2) + bytes(999), "overlap"
    ),
    "twice": (head(tensor(), tensor(), tensors=2) + bytes(999), "stands twice"),
    "alignment": (
        head(key(b"general.alignment", 4, struct.pack("<I", 0)), keys=1), "power of two"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name):
    raw, said = HOSTILE[name]
    with pytest.raises(SerializationError, match=said):
        parse(memoryview(raw), "f")


def test_flips_and_truncations_are_read_or_refused():
    raw, rng = written(), random.Random(0)
    for _ in range(1500):
        bad = bytearray(raw)
        if rng.random() < 0.3:
            del bad[rng.randrange(len(bad)) :]
        else:
            for _ in range(rng.randrange(1, 4)):
                bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        try:
            parse(memoryview(bytes(bad)), "f")
        except SerializationError as error:
            assert str(error).startswith("f")
