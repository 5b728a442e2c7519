"""``torch.export``'s names over programs."""

from __future__ import annotations

import io

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import CaptureError, ConfigError
from disttrain.export import exported as te
from support.cases.exported import same


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.register_buffer("k", dt.ones(4))

    def forward(self, x, scale=2.0):
        return self.norm(self.fc(x)) * scale + self.k + dt.tensor([1.0, 2.0, 3.0, 4.0])


def test_a_module():
    net = Net().eval()
    batch = te.Dim("batch", min=1, max=9)
    ep = te.export(net, (dt.ones(2, 3),), dynamic_shapes={"x": {0: batch}})
    assert same(ep.module()(dt.ones(5, 3)), net(dt.ones(5, 3)))
    sign = ep.graph_signature
    assert (sign.user_inputs == ("x",) and sign.user_outputs == ("add_2",)) or sign.user_outputs
    assert set(sign.parameters) == {n for n, _ in net.named_parameters()}
    assert set(sign.buffers) == {"k", "norm.running_mean", "norm.running_var"}
    assert sign.inputs_to_parameters["p_fc_weight"] == "fc.weight"
    assert sign.inputs_to_buffers["b_k"] == "k" and not sign.buffers_to_mutate
    assert ep.range_constraints == {"batch": batch} and set(ep.state_dict) == {
        *sign.parameters, *sign.buffers}  # fmt: skip
    kinds = [s.kind for s in sign.input_specs]
    assert kinds.count(te.InputKind.PARAMETER) == 4 and kinds[-1] is te.InputKind.USER_INPUT
    assert te.InputKind.CONSTANT_TENSOR in kinds and len(ep.constants) == 1
    assert [n.name for n in ep.graph.nodes if n.op == "placeholder"] == [
        s.arg for s in sign.input_specs]  # fmt: skip
    assert len(list(ep.parameters())) == 4 and len(list(ep.buffers())) == 3
    assert ep.run_decompositions() is ep and "ExportedProgram" in str(ep)
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        ep(dt.ones(2, 3))


def test_modes_stay_as_they_are():
    net = Net()
    ep = te.export(net, (dt.ones(4, 3),))
    assert net.training and set(ep.graph_signature.buffers_to_mutate.values()) == {
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}  # fmt: skip
    assert te.OutputKind.BUFFER_MUTATION in [s.kind for s in ep.graph_signature.output_specs]


def test_files_with_texts():
    ep = te.export(Net().eval(), (dt.ones(2, 3),))
    file = io.BytesIO()
    te.save(ep, file, extra_files={"notes.txt": "hello", "more": b"x"})
    file.seek(0)
    texts = {"notes.txt": "", "none": "-"}
    again = te.load(file, extra_files=texts)
    assert texts == {"notes.txt": "hello", "none": "-"} and not ep.program.metadata
    assert same(again.module()(dt.ones(2, 3)), ep.module()(dt.ones(2, 3)))
    assert same(te.unflatten(again)(dt.ones(2, 3)), ep.module()(dt.ones(2, 3)))
    with pytest.raises(TypeError, match="must be an instance of 'ExportedProgram'"):
        te.save(Net(), file)
    with pytest.raises(ConfigError, match="a text is needed"):
        te.save(ep, file, extra_files={"a": 3})


def test_shapes_by_tensor_and_wrong_calls():
    x, shapes = dt.ones(2, 3), te.ShapesCollection()
    shapes[x] = {0: te.Dim("b")}
    assert len(shapes) == 1 and shapes[x]
    ep = te.export(Net().eval(), (x,), dynamic_shapes=shapes)
    assert list(ep.range_constraints) == ["b"]
    assert [d.name for d in te.dims("a", "b", min=2)] == ["a", "b"]
    with pytest.raises(ValueError, match="Expected `mod` to be an instance"):
        te.export(lambda x: x, (x,))
    with pytest.raises(ConfigError, match="a tuple of arguments"):
        te.export(Net(), [x])
    with pytest.raises(CaptureError, match="example inputs are needed"):
        te.symbolic_trace(Net())
    graph = te.symbolic_trace(Net().eval(), example_inputs=x)
    assert graph(dt.ones(7, 3)).shape == (7, 4) and "linear" in graph.print_readable(False)
    assert graph.recompile() == graph.code
