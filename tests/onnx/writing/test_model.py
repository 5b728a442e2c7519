"""Nodes that results need, and files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from disttrain.onnx.writing import model as models
from disttrain.onnx.writing.types import FLOAT, Ref
from disttrain.onnx.writing.writer import Body, Op


def test_nodes_that_nothing_uses_are_taken_out():
    ops = [Op("A", ["x"], ["a"], {}), Op("B", ["x"], ["b"], {}), Op("C", ["a"], ["c"], {})]
    assert [op.kind for op in models.pruned(ops, ["c"])] == ["A", "C"]


def test_equal_nodes_are_one():
    ops = [
        Op("A", ["x"], ["a"], {"k": 1}), Op("A", ["x"], ["b"], {"k": 1}),
        Op("A", ["x"], ["c"], {"k": 2}), Op("B", ["b", "c"], ["d"], {}),
        Op("B", ["a", "c"], ["e"], {}), Op("RandomNormalLike", ["x"], ["r"], {}),
        Op("RandomNormalLike", ["x"], ["s"], {}), Op("A", ["x"], ["end"], {"k": 1}),
    ]  # fmt: skip
    kept = models.merged(ops, ["end"])
    assert [op.outputs[0] for op in kept] == ["a", "c", "d", "r", "s", "end"]
    assert kept[2].inputs == ["a", "c"]


def test_last_results_are_left_out_where_an_operator_allows_it():
    ops = [
        Op("LayerNormalization", ["x"], ["y", "mean", "rstd"], {}),
        Op("TopK", ["y"], ["v", "i"], {}),
    ]
    kept = models.pruned(ops, ["v"])
    assert [op.outputs for op in kept] == [["y"], ["v", "i"]]


def test_bodies_keep_what_they_take_from_around_them():
    inner = Body([Op("Add", ["a", "t"], ["r"], {})], [Ref("t", FLOAT, ())], [Ref("r", FLOAT, ())])
    ops = [Op("A", ["x"], ["a"], {}), Op("Scan", ["x"], ["s"], {"body": inner})]
    kept = models.pruned(ops, ["s"])
    assert [op.kind for op in kept] == ["A", "Scan"]
    models.renamed(kept, {"a": "first"})
    assert inner.ops[0].inputs == ["first", "t"] and kept[0].outputs == ["first"]


@pytest.mark.parametrize(("opset", "version"), [(17, 8), (21, 10), (23, 11)])
def test_the_format_is_as_old_as_it_can_be(opset, version):
    assert models.ir_version(opset) == version


def test_large_tensors_lie_beside_the_model_on_pages(tmp_path):
    arrays = {
        "small": np.arange(3, dtype=np.float32), "a": np.arange(700.0), "b": np.arange(900) % 7,
        "none": np.zeros((0, 3), np.float32),
    }  # fmt: skip
    ops = [Op("Identity", [n], [f"{n}_out"], {}) for n in arrays]
    outs = [Ref(f"{n}_out", a.dtype, a.shape) for n, a in arrays.items()]
    proto = models.assembled(ops, [], outs, [], 21, "g")
    path = tmp_path / "m.onnx"
    models.write(proto, arrays, str(path), True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    bare = onnx.load(path, load_external_data=False)
    places = {t.name: {e.key: e.value for e in t.external_data} for t in bare.graph.initializer}
    assert places["small"] == {} and int(places["b"]["offset"]) % 4096 == 0
    read = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype and np.array_equal(read[name], array)


def test_a_file_that_fails_leaves_the_one_of_before(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"before")
    proto = models.assembled([], [], [], [], 21, "g")
    with pytest.raises(FileNotFoundError):
        models.write(proto, {}, str(tmp_path / "no" / "m.onnx"), False)
    assert path.read_bytes() == b"before"
