"""``torch.onnx.export`` in both spellings."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compat.torch import onnx as face
from disttrain.errors import ConfigError, ExportError


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def shapes(values) -> list:
    return [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values]


def test_the_older_spelling(tmp_path):
    x, path = dt.randn(2, 4), str(tmp_path / "m.onnx")
    model = net().train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = face.export(
            model, x, path, input_names=["input"], output_names=["out"], dynamo=False,
            dynamic_axes={"input": {0: "batch"}, "out": {0: "batch"}}, opset_version=17,
            do_constant_folding=True, export_params=True, verbose=False,
        )  # fmt: skip
    assert made is None and model.training
    graph = onnx.load(path).graph
    assert shapes(graph.input) == [["batch", 4]] and shapes(graph.output) == [["batch", 3]]
    session = onnxruntime.InferenceSession(path)
    (got,) = session.run(["out"], {"input": dt.ones(5, 4).numpy()})
    np.testing.assert_allclose(got, model.eval()(dt.ones(5, 4)).detach(), atol=1e-5)


def test_the_newer_spelling(tmp_path):
    class Two(nn.Module):
        def forward(self, x, y=None):
            return x if y is None else x @ y

    made = face.export(
        Two(), (dt.randn(2, 4),), kwargs={"y": dt.randn(4, 3)}, dynamo=True, verify=True,
        dynamic_shapes={"x": {0: "n"}, "y": None},
    )  # fmt: skip
    made.save(str(tmp_path / "m.onnx"))
    assert shapes(made.model_proto.graph.input) == [["n", 4], [4, 3]]
    (found,) = made(dt.ones(5, 4), y=dt.ones(4, 3))
    assert found.tolist() == [[4.0] * 3] * 5


def test_axes_without_names_and_arguments_in_a_last_dict():
    file = io.BytesIO()
    axes = {"a": [0], "b": {0: "a_dynamic_axes_1"}}
    given = (dt.randn(2, 4), {"y": dt.randn(2, 4)})
    names = ["a", "b"]
    face.export(lambda x, y: x * y, given, file, dynamo=False, input_names=names, dynamic_axes=axes)
    graph = onnx.load_from_string(file.getvalue()).graph
    assert shapes(graph.input) == [["a_dynamic_axes_1", 4]] * 2


def test_modes_of_modules():
    def kinds(**how):
        file = io.BytesIO()
        made = face.export(net().train(), (dt.randn(2, 4),), file, **how)
        proto = made.model_proto if made else onnx.load_from_string(file.getvalue())
        return [n.op_type for n in proto.graph.node]

    assert "Dropout" in kinds(dynamo=True)
    assert "Dropout" not in kinds(dynamo=False)
    assert "Dropout" in kinds(dynamo=False, training=face.TrainingMode.TRAINING)
    assert "Dropout" in kinds(dynamo=False, training=face.TrainingMode.PRESERVE)


def test_what_is_not_there_is_told():
    names = face.modules()["torch.onnx"]
    x = (dt.randn(2, 4),)
    with pytest.raises(names.OnnxExporterError, match="lgamma"):
        face.export(dt.lgamma, x)
    assert face.modules()["torch.onnx.errors"].UnsupportedOperatorError is ExportError
    for how in ({"custom_opsets": {"a": 1}}, {"report": True}, {"custom_translation_table": {1: 2}},
                {"operator_export_type": face.OperatorExportTypes.ONNX_ATEN}):  # fmt: skip
        with pytest.raises(ConfigError, match=next(iter(how))):
            face.export(net(), x, **how)
    with pytest.raises(ConfigError, match="f=None"):
        face.export(net(), x, dynamo=False)


def test_the_module_loads_nothing_until_it_is_asked():
    names = face.modules()["torch.onnx"]
    assert "ONNXProgram" not in vars(names) and not names.is_in_onnx_export()
    assert names.ONNXProgram.__name__ == "ONNXProgram"
