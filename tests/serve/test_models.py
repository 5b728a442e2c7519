"""Models from files; whether rows of a batch leave each other alone."""

import os

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, SerializationError
from disttrain.serve.models import Model, fingerprint, independent, open_onnx, open_program, tried
from disttrain.serve.signature import Signature, Spec

ROW = (("batch", 3),)


def model(run, kind="float32", dims=None):
    outputs = (Spec("y", kind, *ROW),)
    signature = Signature((Spec("x", "float32", *ROW),), outputs, dims or {"batch": (1, None)})
    return Model(signature, run)


def saved(path, fn, *args, **options):
    dt.export(fn, args, **options).save(path)
    return str(path)


def test_a_saved_program_is_opened_with_its_batch(tmp_path) -> None:
    dt.manual_seed(0)
    net = dt.nn.Sequential(dt.nn.Linear(3, 4), dt.nn.ReLU(), dt.nn.Linear(4, 2)).eval()
    dynamic = {"input": {0: dt.export.Dim("rows", max=8)}}
    path = saved(tmp_path / "m.dtp", net, dt.zeros(2, 3), dynamic=dynamic)
    opened = open_program("m", path)
    assert opened.signature.batch == "rows" and opened.signature.dims == {"rows": (1, 8)}
    assert opened.signature.inputs == (Spec("input", "float32", ("rows", 3)),)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    (name,) = (spec.name for spec in opened.signature.outputs)
    with dt.no_grad():
        np.testing.assert_array_equal(opened.run({"input": x})[name], net(dt.tensor(x)).numpy())
    folder = saved(tmp_path / "folder", net, dt.zeros(2, 3))
    assert open_program("m", folder).signature.batch == ""  # it has no size that changes


def test_rows_that_see_each_other_are_not_joined(tmp_path) -> None:
    def centred(x):
        return x - x.mean(0)

    path = saved(tmp_path / "m.dtp", centred, dt.zeros(2, 3), dynamic={"x": {0: "n"}})
    assert open_program("m", path).signature.batch == ""
    path = saved(
        tmp_path / "n.dtp", lambda x: x.softmax(1), dt.zeros(2, 3), dynamic={"x": {0: "n"}}
    )
    assert open_program("n", path).signature.batch == "n"


def test_what_the_program_says_counts_more_than_a_trial(tmp_path) -> None:
    path = saved(
        tmp_path / "m.dtp", lambda x: x - 1e-9 * x.mean(0), dt.zeros(2, 3), dynamic={"x": {0: "n"}}
    )
    assert open_program("m", path).signature.batch == ""  # no trial sees so little
    words = dt.nn.Embedding(2, 3).eval()
    limit = dt.export(words, (dt.zeros(2, 3, dtype=dt.int64),), dynamic={"input": {0: "n"}})
    limit.save(tmp_path / "w.dtp")
    assert open_program("w", str(tmp_path / "w.dtp")).signature.batch == "n"


def test_a_program_that_changes_itself_is_refused(tmp_path) -> None:
    norm = dt.nn.BatchNorm1d(3)
    path = saved(tmp_path / "m.dtp", norm, dt.ones(4, 3), train=True)
    with pytest.raises(ConfigError, match=r"m: a call changes .*train=False"):
        open_program("m", path)


def test_files_that_are_none_are_refused(tmp_path) -> None:
    path = tmp_path / "m.dtp"
    path.write_bytes(os.urandom(200))
    with pytest.raises(SerializationError):
        open_program("m", str(path))
    with pytest.raises((OSError, SerializationError)):
        open_program("m", str(tmp_path / "gone.dtp"))


def test_what_rows_give_is_tried() -> None:
    def same(arrays):
        return {"y": arrays["x"] * 2}

    assert independent(model(same), "batch")
    for run in (
        lambda a: {"y": a["x"] - a["x"].mean(0)},
        lambda a: {"y": a["x"][::-1].copy()},
        lambda a: {"y": np.cumsum(a["x"], 0)},
        lambda a: {"y": a["x"][:1]},
        lambda a: {"y": a["x"] / len(a["x"])},
        lambda a: 1 / 0,
    ):
        assert not independent(model(run), "batch")
    assert not independent(model(same, dims={"batch": (2, None)}), "batch")  # one alone may not be
    assert not independent(model(same, dims={"batch": (1, 1)}), "batch")
    assert tried("m", model(same)).signature.batch == "batch"
    with pytest.raises(ConfigError, match="complex64"):
        tried("m", model(same, "complex64"))


def test_a_fingerprint_changes_with_the_file(tmp_path) -> None:
    path = tmp_path / "m"
    assert fingerprint(str(path)) == []
    path.write_text("a")
    first = fingerprint(str(path))
    assert first == fingerprint(str(path)) != []
    other = tmp_path / "n"
    other.write_text("a")
    other.replace(path)
    assert fingerprint(str(path)) != first
    with open(path) as file:  # a name for what is open
        assert fingerprint(f"/proc/self/fd/{file.fileno()}") == fingerprint(str(path))
    assert len(fingerprint(str(tmp_path))) == 1


def test_a_model_in_onnx_is_run_by_onnxruntime(tmp_path) -> None:
    onnx = pytest.importorskip("onnx", reason="ONNX's packages are missing: disttrain[onnx]")
    pytest.importorskip("onnxruntime", reason="ONNX's packages are missing: disttrain[onnx]")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", floats, ["batch", 3])],
        [helper.make_tensor_value_info("y", floats, ["batch", 3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = str(tmp_path / "m.onnx")
    onnx.save(made, path)
    opened = open_onnx("m", path)
    assert opened.signature.batch == "batch"
    assert opened.run({"x": np.float32([[-1, 0, 2]])})["y"].tolist() == [[0, 0, 2]]
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(SerializationError, match="onnxruntime does not take it"):
        open_onnx("m", path)
