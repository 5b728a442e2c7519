"""Damaged and hostile files: all refused, by name and offset, before a tensor is given out."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import re
import resource
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from disttrain.backends.llvm.checksum import crc32c_blocks
from disttrain.core import wrap
from disttrain.errors import SerializationError
from disttrain.serialize import layout, load, save


def file_of(table, data=b"", length=None):
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(code="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": code, "shape": list(shape), "data_offsets": list(offsets)}


def refused(tmp_path, data, match):
    """Refused as a stream, as a mapping and as a file that is read."""
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    for mapped in (True, False):
        with pytest.raises(SerializationError, match=match) as info:
            load(path, mmap=mapped, verify=True)
        assert str(path) in str(info.value)
    with pytest.raises(SerializationError, match=match):
        load(io.BytesIO(data))


HEADERS = {
    "empty file": (b"", "cut short"),
    "seven bytes": (b"\x02" * 7, "cut short"),
    "header longer than the file": (file_of({}, length=100), "only 2 follow"),
    "huge header": (struct.pack("<Q", 1 << 62) + b"{}", "header is said to have"),
    "over the cap": (struct.pack("<Q", layout.HEADER_CAP + 1) + b"{}", "are allowed"),
    "no header": (struct.pack("<Q", 0), "are allowed"),
    "not an object": (file_of(b"[]"), "begins with"),
    "no JSON": (file_of(b"{nope}"), "no valid JSON"),
    "no UTF-8": (file_of(b'{"\xff":1}'), "no valid JSON"),
    "two values": (file_of(b"{}{}"), "no valid JSON"),
    "NaN": (file_of(b'{"a":NaN}'), "NaN is no JSON"),
    "Infinity": (file_of(b'{"a":-Infinity}'), "Infinity is no JSON"),
    "thousands of digits": (file_of(b'{"a":' + b"1" * 5000 + b"}"), "no valid JSON"),
    "deep": (file_of(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), "nested too deeply"),
    "many values": (file_of(b'{"a":[' + b"0," * 3_100_000 + b"0]}"), "at most"),
    "twice": (file_of(b'{"a":1,"a":2}'), "'a' stands twice"),
    "metadata no dict": (file_of({"__metadata__": 3}), "map names to texts"),
    "metadata no text": (file_of({"__metadata__": {"a": 3}}), "map names to texts"),
}  # fmt: skip

ENTRIES = {
    "not a dict": (3, "exactly"),
    "a key too many": ({**entry(), "pickle": "x"}, "exactly"),
    "a key too few": ({"dtype": "F32", "shape": [1]}, "exactly"),
    "unknown type": (entry("F31"), "not known"),
    "type no text": (entry(["F32"]), "not known"),
    "negative size": (entry(shape=(-1,)), "0 or more"),
    "size a float": (entry(shape=(1.0,)), "0 or more"),
    "size a truth value": (entry(shape=(True,)), "0 or more"),
    "size too large": (entry(shape=(1 << 63,)), "0 or more"),
    "too many dimensions": (entry(shape=(1,) * 65), "0 or more"),
    "overflow": (entry(shape=(1 << 32, 1 << 32)), "larger than any memory"),
    "overflow with 0": (entry(shape=(0, 1 << 62, 1 << 62), offsets=(0, 0)), "larger than any"),
    "offsets reversed": (entry(offsets=(4, 0)), "takes 4"),
    "offsets negative": (entry(offsets=(-4, 0)), "two are needed"),
    "three offsets": (entry(offsets=(0, 2, 4)), "two are needed"),
    "size and offsets differ": (entry(offsets=(0, 8)), "takes 4"),
    "beyond the end": (entry(offsets=(0, 8), shape=(2,)), "cut short"),
    "hole": (entry(offsets=(4, 8)), "hole"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers(tmp_path, name):
    refused(tmp_path, *HEADERS[name])


@pytest.mark.parametrize("name", ENTRIES)
def test_hostile_entries(tmp_path, name):
    value, match = ENTRIES[name]
    refused(tmp_path, file_of({"bad": value}, b"\0" * 4), match)
    with pytest.raises(SerializationError, match=r"tensor 'bad'|last is 'bad'"):
        load(io.BytesIO(file_of({"bad": value}, b"\0" * 4)))


def test_overlap_hole_and_tail(tmp_path):
    two = {"a": entry(shape=(2,), offsets=(0, 8)), "b": entry(offsets=(4, 8))}
    refused(tmp_path, file_of(two, b"\0" * 8), "'b': offset 4: overlaps")
    two["b"] = entry(offsets=(12, 16))
    refused(tmp_path, file_of(two, b"\0" * 16), "'b': offset 12: leaves a hole")
    refused(tmp_path, file_of({"a": entry()}, b"\0" * 5), "something else follows")
    two["b"] = entry(offsets=(0, 8), shape=(2,))
    refused(tmp_path, file_of(two, b"\0" * 8), "overlaps")


def test_truth_values_are_0_or_1(tmp_path):
    refused(tmp_path, file_of({"a": entry("BOOL", offsets=(0, 1))}, b"\2"), "truth value is 2")


@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickles_are_named_and_not_run(tmp_path, protocol):
    mark = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(mark),))

    refused(tmp_path, pickle.dumps(Evil(), protocol), "a Python pickle.*Nothing is unpickled")
    assert not mark.exists()


def test_archives_are_named_with_the_way_to_convert_them(tmp_path):
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z:
        z.writestr("a.npy", b"1")
    refused(tmp_path, f.getvalue(), r"zip archive, as torch\.save.*Convert it once")


@pytest.mark.peer
def test_objects_in_files_of_pytorch_are_named(tmp_path):
    import torch

    for new in (True, False):
        f = io.BytesIO()
        torch.save(torch.nn.Linear(1, 1), f, _use_new_zipfile_serialization=new)
        refused(tmp_path, f.getvalue(), r"needs torch.nn.modules.linear.Linear.*state_dict\(\)")


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["plain", "nested", "whole run"])
def test_the_way_to_convert_them_works(tmp_path, kind):
    """Also for weights that share memory, in nested dictionaries, beside numbers and texts."""
    import torch

    net = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False))
    net[1].weight = net[0].weight
    net(torch.tensor([1])).sum().backward()
    optimizer = torch.optim.AdamW(net.parameters())
    optimizer.step()
    kept = {"plain": net.state_dict(), "nested": {"model": net.state_dict(), "epoch": 3},
            "whole run": {"model": net.state_dict(), "optimizer": optimizer.state_dict(),
                          "name": "it", "part": {"t": net[0].weight.T}}}[kind]  # fmt: skip
    torch.save(kept, tmp_path / "model.pt")
    line = re.search(r'python -c "(.*)"', layout.CONVERT_LINE)[1]
    subprocess.run([sys.executable, "-c", line], cwd=tmp_path, check=True)
    found = load(tmp_path / "model.safetensors")
    for name in ("0.weight", "1.weight"):
        got = found[name if kind == "plain" else f"model.{name}"]
        assert (got.numpy() == net[0].weight.detach().numpy()).all()
    assert kind != "nested" or found["epoch"].item() == 3
    assert kind != "whole run" or found["optimizer.state.0.exp_avg"].shape == (5, 3)


# --- the description of nested values -------------------------------------------------------------


def described(about, raw=b"\0" * 8):
    """A file whose checksums are right and whose description is not."""
    e = layout.Entry("t", "U8", (len(raw),), 0, len(raw))
    text = about if isinstance(about, str) else json.dumps(about)
    sums = crc32c_blocks(np.frombuffer(raw, np.uint8)).tolist()
    return layout.build([e], {"disttrain": text}, sums) + raw


def tree(node, **views):
    return {"version": 1, "tree": node, "views": views}


def view(of="t", code="U8", shape=(2,), offset=0, strides=(1,)):
    return {"of": of, "code": code, "shape": list(shape), "offset": offset,
            "strides": list(strides)}  # fmt: skip


NODES = {
    "no tag": [], "a tag that is no text": [[]], "unknown tag": ["call", "os.system"],
    "unknown tensor": ["tensor", "u"], "tensor name no text": ["tensor", 3], "no name": ["tensor"],
    "bytes": ["bytes", "@@"], "bytes no text": ["bytes", 3], "float": ["float", "1e5"],
    "int": ["int", "xyz"], "scalar": ["scalar", "F32", "00"], "scalar type": ["scalar", "O", "00"],
    "key": ["dict", [[["list"], 1]]], "pair": ["dict", [[1]]], "pairs": ["dict", 3],
    "size": ["Size", 1.5], "dtype": ["dtype", "object"], "device": ["device", 3],
    "path": ["path", 3], "complex": ["complex", "a", 1], "set": ["set", ["list"]],
    "leaf of integers": ["leaf", "t"], "deep": json.loads('["list",' * 250 + "1" + "]" * 250),
    "reference to nothing": ["ref", 3], "reference to a text": ["ref", "a"],
    "number": ["def", "a", {}], "factory": ["defaultdict", "eval", []],
    "call": ["object", 0, "call", 1, [], {}, None, None, None],
    "short object": ["object", 0], "object of a number": ["object", 0, "new", 3, [], {}, 0, 0, 0],
    "enum of a number": ["enum", 3, "A"], "method of a number": ["method", 3, "__add__"],
    "class of a tensor": ["subclass", 3, ["tensor", "t"], {}], "range": ["range", 1, "a", 1],
    "meta": ["meta", 0, "float32", False, -1], "meta type": ["meta", 0, "object", False, 1],
    "deque": ["deque", "a", 1], "slice": ["slice"], "counter": ["Counter", [[1]]],
}  # fmt: skip

VIEWS = {
    "beyond": view(offset=7), "before": view(strides=(-1,)), "far": view(offset=1 << 70),
    "wide": view(code="F64", offset=1, shape=(1,)), "no type": view(code="O"),
    "strides": view(strides=()), "negative": view(shape=(-1,)), "floats": view(offset=0.0),
    "unknown": view(of="u"), "itself": view(of="v"), "list": [1],
    "shape a text": {**view(), "shape": "ab"}, "dims": view(shape=(1,) * 65, strides=(1,) * 65),
    "huge stride": view(strides=(1 << 61,)),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_hostile_structure(tmp_path, name):
    refused(tmp_path, described(tree(NODES[name])), "structure")


@pytest.mark.parametrize("name", VIEWS)
def test_hostile_views(tmp_path, name):
    refused(tmp_path, described(tree(["tensor", "v"], v=VIEWS[name])), "view 'v'|structure")


def test_truth_values_in_views(tmp_path):
    data = described(tree(["tensor", "v"], v=view(code="BOOL")), b"\1\7")
    refused(tmp_path, data, "truth values")


@pytest.mark.parametrize(
    "about", ["{", "3", '{"version":2}', '{"version":1,"in":"u"}', '{"version":1,"in":"t"}']
)
def test_hostile_descriptions(tmp_path, about):
    refused(tmp_path, described(about), "structure")


# --- damage ---------------------------------------------------------------------------------------


def sample():
    rng = np.random.default_rng(1)
    w = rng.standard_normal((4, 6)).astype(np.float32)
    obj = {
        "model": {"w": wrap(w), "tied": wrap(w), "row": wrap(w[1])},
        "half": wrap(w.astype(np.float16)),
        "step": 3,
        "rest": [b"bytes", 1.5, (None, True), {0: wrap(np.arange(5))}],
        "mask": wrap(np.array([True, False])),
    }
    f = io.BytesIO()
    save(obj, f)
    return f.getvalue()


def test_every_flipped_bit_is_found():
    """One bit in every byte of the file (a seeded one), and every bit of the first 200 bytes."""
    data = sample()
    rng = random.Random(0)
    flips = [(i, b) for i in range(200) for b in range(8)]
    flips += [(i, rng.randrange(8)) for i in range(200, len(data))]
    for position, bit in flips:
        bad = bytearray(data)
        bad[position] ^= 1 << bit
        with pytest.raises(SerializationError):
            load(io.BytesIO(bytes(bad)))
            pytest.fail(f"bit {bit} of byte {position}")


def test_every_truncation_is_found():
    data = sample()
    for length in range(len(data)):
        with pytest.raises(SerializationError):
            load(io.BytesIO(data[:length]))


def test_a_damaged_tensor_is_named_with_its_offset(tmp_path):
    path = tmp_path / "x"
    save({"a": wrap(np.zeros(100)), "b": wrap(np.zeros(100))}, path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(SerializationError, match=r"'b': offset 800: .* checksum"):
        load(path)
    assert load(path, mmap=True)["a"].array[0] == 0  # asked for speed: not looked at


def test_random_damage_never_gives_anything_else():
    """Several bytes at once, and headers put together at random: refused or loaded, never worse."""
    rng = random.Random(2)
    data = sample()
    for _ in range(600):
        bad = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        if rng.random() < 0.3:
            del bad[rng.randrange(len(bad)) : rng.randrange(len(bad)) + 40]
        if bytes(bad) != data:
            with pytest.raises(SerializationError):
                load(io.BytesIO(bytes(bad)))
    words = ["F32", "BOOL", -1, 0, 4, 1 << 64, 1.5, None, [], [0, 4], [0, 8], {}, "a", True]
    keys = ["dtype", "shape", "data_offsets", "x", "__metadata__"]
    for _ in range(600):
        table = {
            rng.choice(keys): {rng.choice(keys): rng.choice(words) for _ in range(rng.randrange(5))}
            for _ in range(rng.randrange(4))
        }
        try:
            load(io.BytesIO(file_of(table, b"\0" * rng.choice([0, 4, 8]))))
        except SerializationError:
            pass


def test_a_false_size_allocates_nothing():
    """A pipe that promises a terabyte: what comes is read, what does not come is not allocated."""
    table = {"a": entry("U8", (1 << 40,), (0, 1 << 40))}

    class Pipe:
        def __init__(self):
            self.f = io.BytesIO(file_of(table, b"\0" * 1000))

        def read(self, n):
            return self.f.read(n)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SerializationError, match="missing at the end"):
        load(Pipe())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_files_of_older_versions_are_checked_by_their_own_sums():
    """They have one CRC-32 for each tensor."""
    raw = bytes(range(16))
    entries = [layout.Entry("a", "U8", (10,), 0, 10), layout.Entry("b", "U8", (6,), 10, 16)]
    sums = "".join(f"{layout.zlib.crc32(part):08x}" for part in (raw[:10], raw[10:]))
    whole = layout.build(entries, {layout.SUMS: sums}, None) + raw
    assert load(io.BytesIO(whole))["b"].array.tolist() == list(range(10, 16))
    for at in (1, 15):
        damaged = bytearray(whole)
        damaged[len(whole) - 16 + at] ^= 1
        with pytest.raises(SerializationError, match=f"tensor '{'a' if at < 10 else 'b'}'"):
            load(io.BytesIO(bytes(damaged)))
    short = layout.build(entries, {layout.SUMS: sums[:8]}, None) + raw
    with pytest.raises(SerializationError, match="1 checksums where 2 are needed"):
        load(io.BytesIO(short))
