"""GGUF files of models: types, round trips, and the package ``gguf`` as their reader."""

from __future__ import annotations

import threading

import gguf as package
import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, SerializationError
from disttrain.serialize import gguf

nn = dt.nn


def state():
    dt.manual_seed(0)
    return {
        "token_embd.weight": dt.randn(7, 32), "position_embd.weight": dt.randn(4, 32),
        "blk.0.attn_norm.weight": dt.randn(32), "blk.0.attn_qkv.weight": dt.randn(96, 32),
        "blk.0.attn_qkv.bias": dt.randn(96), "blk.0.odd.weight": dt.randn(3, 5),
        "blk.0.table": dt.arange(6), "blk.0.scalar": dt.tensor(2.5),
    }  # fmt: skip


EXPECTED = {
    "F32": {},
    "F16": {"token_embd.weight": "F16", "blk.0.attn_qkv.weight": "F16", "blk.0.odd.weight": "F16"},
    "Q8_0": {
        "token_embd.weight": "Q8_0", "blk.0.attn_qkv.weight": "Q8_0", "blk.0.odd.weight": "F16"
    },
    "BF16": dict.fromkeys(
        ("token_embd.weight", "blk.0.attn_qkv.weight", "blk.0.odd.weight"), "BF16"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", EXPECTED)
def test_what_is_written_is_read_here_and_by_the_package(tmp_path, kind):
    given, path = state(), tmp_path / "m.gguf"
    gguf.save(given, path, type=kind, metadata={"general.architecture": "gpt2"})
    found = gguf.load(path)
    types = {"blk.0.table": "I64", **EXPECTED[kind]}
    assert found.types == {n: types.get(n, "F32") for n in given}
    assert found.metadata["general.file_type"] == {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}[kind]
    reader = package.GGUFReader(path)
    assert [t.name for t in reader.tensors] == list(given)
    for told in reader.tensors:
        ours = found.tensors[told.name]
        assert list(ours.shape) == [int(n) for n in told.shape][::-1][: ours.ndim]
        theirs = told.data
        if told.name != "blk.0.table":
            theirs = package.quants.dequantize(theirs, told.tensor_type)
        np.testing.assert_array_equal(ours.to(dt.float64).numpy().ravel(), theirs.ravel())
        near = 0.02 if kind in ("Q8_0", "BF16") else 1e-3 if kind == "F16" else 0
        assert (ours.to(dt.float64) - given[told.name]).abs().max().item() <= near


def test_a_file_is_written_again_as_it_was(tmp_path):
    one, two = tmp_path / "1.gguf", tmp_path / "2.gguf"
    gguf.save(state(), one, type="Q8_0")
    gguf.save(gguf.load(one), two)
    assert one.read_bytes() == two.read_bytes()
    gguf.save(gguf.load(one), one)  # over the file that is mapped
    assert one.read_bytes() == two.read_bytes()


def test_types_stay_without_a_word(tmp_path):
    kinds = (dt.float16, dt.bfloat16, dt.float64, dt.int8, dt.int32)
    given = {str(k): dt.ones(2, 3).to(k) for k in kinds}
    gguf.save(given, tmp_path / "m.gguf")
    found = gguf.load(tmp_path / "m.gguf").tensors
    assert {n: t.dtype for n, t in found.items()} == {n: t.dtype for n, t in given.items()}


def test_modules_views_and_gradients(tmp_path):
    model = nn.Linear(32, 4)
    gguf.save(model, tmp_path / "m.gguf", type="F32")
    found = gguf.load(tmp_path / "m.gguf").tensors
    assert found["weight"].tolist() == model.weight.tolist()
    turned = dt.arange(12.0).reshape(3, 4).t()
    gguf.save({"t": turned}, tmp_path / "t.gguf")
    assert gguf.load(tmp_path / "t.gguf").tensors["t"].tolist() == turned.tolist()


@pytest.mark.parametrize(
    "given, options, said",
    [
        (3, {}, "int given"),
        ({"a": 3}, {}, "'a' is int"),
        ({3: dt.ones(1)}, {}, "the key 3"),
        ({"a": dt.zeros(2, dtype=dt.complex64)}, {}, "'a' is complex64"),
        ({"a": dt.zeros(2, dtype=dt.bool)}, {}, "'a' is bool"),
        ({"a": dt.zeros(2, device="meta")}, {}, "meta device"),
        ({"a": dt.zeros(0)}, {}, "sizes above 0"),
        ({"a.weight": dt.ones(2, 32)}, {"type": "Q9"}, "type='Q9'"),
        ({"a.weight": dt.ones(2, 32)}, {"type": "Q4_0"}, "not written"),
        ({"a": dt.ones(1)}, {"metadata": {"k": None}}, "'k' is NoneType"),
    ],
)
def test_what_cannot_be_written(tmp_path, given, options, said):
    with pytest.raises((ConfigError, SerializationError), match=said):
        gguf.save(given, tmp_path / "m.gguf", **options)
    assert not (tmp_path / "m.gguf").exists()


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "m.gguf"
    gguf.save(state(), path, type="Q8_0")
    raw = path.read_bytes()
    for cut in (0, 3, 30, len(raw) - 200):
        path.write_bytes(raw[:cut])
        with pytest.raises(SerializationError, match=str(path)):
            gguf.load(path)


def test_threads(tmp_path):
    given = state()

    def work(k):
        gguf.save(given, tmp_path / f"{k}.gguf", type="Q8_0")
        gguf.load(tmp_path / f"{k}.gguf")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({(tmp_path / f"{k}.gguf").read_bytes() for k in range(4)}) == 1
