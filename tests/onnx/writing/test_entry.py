"""``dt.onnx.export``: names, sizes, files, versions, what is refused."""

from __future__ import annotations

import io
import threading

import numpy as np
import onnx
import onnxruntime
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import CaptureError, ConfigError, ExportError, ShapeError
from disttrain.nn import functional as F
from support.onnx_runs import operators, tensors, written


class Block(nn.Module):
    """A layer of a transformer, as people write it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: dt.Tensor) -> dt.Tensor:
        n, length, width = x.shape
        qkv = self.qkv(self.ln1(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    """A small one."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.blocks = nn.ModuleList([Block(16, 2) for _ in range(2)])
        self.ln, self.head = nn.LayerNorm(16), nn.Linear(16, 50, bias=False)

    def forward(self, words: dt.Tensor) -> dt.Tensor:
        x = self.words(words) + self.places(dt.arange(words.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Residual(nn.Module):
    """A block of a ResNet."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(inner, outer, 1, stride)

    def forward(self, x: dt.Tensor) -> dt.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.short(x))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).eval()


# --- models ------------------------------------------------------------------------------------
@pytest.mark.parametrize("opset", [None, 18])
def test_a_gpt_of_any_batch_and_length(opset):
    words = [(dt.randint(0, 50, s),) for s in ((2, 8), (3, 5), (1, 32))]
    made = written(GPT(), *words, dynamic=({0: "batch", 1: "length"},), opset_version=opset)
    (output,) = made.model_proto.graph.output
    shown = [d.dim_param or d.dim_value for d in output.type.tensor_type.shape.dim]
    assert shown == ["batch", "length", 50]
    if opset is None:
        assert operators(made).count("Attention") == 2 and operators(made).count("Gelu") == 2
        assert operators(made).count("LayerNormalization") == 5


def test_a_resnet():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Residual(8, 8, 1), Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    made = written(model, (dt.randn(2, 3, 9, 9),), (dt.randn(5, 3, 9, 9),), dynamic=({0: "n"},))
    assert operators(made).count("BatchNormalization") == 4
    assert not {"Sqrt", "Mul", "Sub"} & set(operators(made))


def test_an_lstm_over_words():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.net = nn.Embedding(9, 4), nn.LSTM(4, 5, 2, batch_first=True)
            self.head = nn.Linear(5, 2)

        def forward(self, x):
            return self.head(self.net(self.words(x))[0][:, -1])

    words = [(dt.randint(0, 9, s),) for s in ((2, 6), (4, 3))]
    written(Words(), *words, dynamic=({0: "n", 1: "length"},))


# --- names -------------------------------------------------------------------------------------
def test_names_of_inputs_results_and_parameters():
    made = dt.onnx.export(net(), (dt.randn(2, 4),), input_names=["in"], output_names=["logits"],
                          dynamic={"in": {0: "batch"}})  # fmt: skip
    assert made.input_names == ["in"] and made.output_names == ["logits"]
    graph = made.model_proto.graph
    assert {t.name for t in graph.initializer} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert [n.name for n in graph.node] == ["/0/Gemm", "/1/Tanh", "/2/Gemm"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


class Names(nn.Module):
    """Parameters that are called as values of programs are."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("input", "output", "add", "mul_1", "const", "c0", "c1", "held_0"):
            self.register_parameter(name, nn.Parameter(dt.randn(4)))
        self.scale = dt.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, input: dt.Tensor) -> dt.Tensor:
        for t in (self.output, self.add, self.const, self.c0, self.c1, self.held_0, self.mul_1):
            input = input * t + dt.arange(4) * self.input
        return input + self.scale * dt.tensor([3.0, 1.0, 2.0, 1.0])


def test_parameters_with_the_names_of_values():
    made = written(Names(), (dt.randn(2, 4),))
    assert made.input_names == ["input"] and made.output_names == ["output_out"]


def test_results_that_are_inputs_constants_or_twice_the_same():
    c = dt.ones(2)
    made = written(lambda x: {"a": x, "b": c, "c": x * 2, "d": c, "e": x}, (dt.randn(2),))
    assert len(set(made.output_names)) == 5
    written(lambda x: (lambda y: (y, y, x))(x + 1), (dt.randn(2),))


def test_arguments_in_trees_and_by_name():
    def fn(pair, *, scale):
        return pair["a"] @ pair["b"][0] * scale

    given = ({"a": dt.randn(2, 3), "b": [dt.randn(3, 2)]},)
    written(fn, given, kwargs={"scale": dt.tensor(2.0)})
    written(fn, given, kwargs={"scale": 2.0})


def test_there_are_no_nodes_that_nothing_uses():
    def fn(x):
        unused = x.exp().sum()
        return x + 1 if unused is not None else x

    made = written(fn, (dt.randn(3),))
    assert operators(made) == ["Add"]
    assert len(made.model_proto.graph.initializer) == 1


def test_what_is_made_of_constants_is_one():
    made = written(lambda x: x + dt.arange(3) * 2.5 + dt.eye(3).sum(0), (dt.randn(3),))
    assert operators(made) == ["Add", "Add"]
    made = written(lambda x: x + dt.ones(3).exp(), (dt.randn(3),), do_constant_folding=False)
    assert operators(made) == ["Exp", "Add"]


# --- files -------------------------------------------------------------------------------------
def outputs(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


def test_files_with_parameters_inside_beside_and_as_inputs(tmp_path):
    model, x = nn.Linear(40, 30).eval(), dt.randn(2, 40)
    want = model(x).detach().numpy()
    made = dt.onnx.export(model, (x,), tmp_path / "a.onnx")
    np.testing.assert_allclose(outputs(str(tmp_path / "a.onnx"), x), want, atol=1e-5)
    made.save(tmp_path / "b.onnx", external_data=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "b.onnx", "b.onnx.data"]
    onnx.checker.check_model(str(tmp_path / "b.onnx"), full_check=True)
    assert (tmp_path / "b.onnx").stat().st_size < 2000
    np.testing.assert_allclose(outputs(str(tmp_path / "b.onnx"), x), want, atol=1e-5)
    dt.onnx.export(model, (x,), tmp_path / "c.onnx", export_params=False)
    session = onnxruntime.InferenceSession(str(tmp_path / "c.onnx"))
    assert [i.name for i in session.get_inputs()] == ["input", "weight", "bias"]
    made.save(tmp_path / "d.onnx", keep_initializers_as_inputs=True)
    assert len(onnx.load(tmp_path / "d.onnx").graph.input) == 3
    np.testing.assert_allclose(outputs(str(tmp_path / "d.onnx"), x), want, atol=1e-5)


def test_parameters_over_the_limit_of_a_file_go_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr("disttrain.onnx.writing.model.LIMIT", 4000)
    x = dt.randn(2, 40)
    model = nn.Linear(40, 30).eval()
    dt.onnx.export(model, (x,), tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx.data").exists()
    np.testing.assert_allclose(outputs(str(tmp_path / "a.onnx"), x), model(x).detach(), atol=1e-5)
    with pytest.raises(ConfigError, match="file object given for a model of 4920 bytes"):
        dt.onnx.export(model, (x,), io.BytesIO())


def test_an_open_file():
    file = io.BytesIO()
    dt.onnx.export(net(), dt.randn(2, 4), file)
    onnx.checker.check_model(onnx.load_from_string(file.getvalue()), full_check=True)


def test_a_program_is_written_as_it_is():
    program = dt.export(net(), (dt.randn(2, 4),), dynamic=({0: "n"},))
    made = dt.onnx.export(program)
    x = dt.randn(7, 4)
    np.testing.assert_allclose(tensors(made(x))[0], tensors(program(x))[0], atol=1e-6)
    with pytest.raises(ConfigError, match="dynamic given with a program"):
        dt.onnx.export(program, dynamic={"input": {0: "n"}})


def test_exports_from_several_threads_and_twice():
    model, x = net(), dt.randn(2, 4)
    first = dt.onnx.export(model, (x,)).model_proto.SerializeToString()
    found = [None] * 3

    def work(i):
        found[i] = dt.onnx.export(model, (x,)).model_proto.SerializeToString()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [first] * 3


def test_a_session_is_kept_and_let_go():
    made, x = dt.onnx.export(net(), (dt.randn(2, 4),)), dt.randn(2, 4)
    made(x)
    session = made.session
    made(x)
    assert made.session is session
    made.release()
    assert made.session is None and "Gemm" in repr(made)


def test_other_weights():
    made, x = dt.onnx.export(nn.Linear(4, 3), (dt.randn(2, 4),)), dt.randn(2, 4)
    other = nn.Linear(4, 3)
    made(x)
    made.apply_weights(other.state_dict())
    np.testing.assert_allclose(tensors(made(x))[0], other(x).detach(), atol=1e-6)
    with pytest.raises(ConfigError, match=r"the model has float32\[3\]"):
        made.apply_weights({"bias": dt.randn(4)})
    with pytest.raises(ConfigError, match="no such one"):
        made.apply_weights({"scale": dt.randn(4)})


# --- what is refused ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"opset_version": 16}, "needed a version of the operator set from 17 to"),
        ({"opset_version": "18"}, "opset_version='18' given"),
        ({"input_names": ["a", "b"]}, "needed at most 1 names"),
        ({"output_names": [3]}, "needed are texts"),
        ({"input_names": ["a"], "output_names": ["a"]}, "the name 'a' given to an input"),
        ({"dynamic": {"y": {0: "n"}}}, "dynamic names 'y'"),
    ],
)
def test_wrong_arguments(how, message):
    with pytest.raises(ConfigError, match=message):
        dt.onnx.export(net(), (dt.randn(2, 4),), **how)


def test_all_that_cannot_be_written_is_told_at_once():
    class Odd(nn.Module):
        def forward(self, x):
            return dt.linalg.inv(x @ x.t()) + dt.lgamma(x @ x.t())

    model = nn.Sequential(nn.Linear(4, 4), Odd())
    with pytest.raises(ExportError) as error:
        dt.onnx.export(model, (dt.randn(2, 4),))
    text = str(error.value)
    assert "2 operations" in text and "inv in 1 (" in text and "lgamma in 1 (" in text
    assert "test_entry.py:" in text


def test_a_size_that_cannot_change_is_told():
    with pytest.raises(CaptureError, match="cannot change"):
        dt.onnx.export(lambda x: x * 2 if x.shape[1] == 5 else x, (dt.randn(4, 5),),
                       dynamic=({1: "k"},))  # fmt: skip


def test_types_that_an_older_operator_does_not_take_are_widened():
    model = nn.Conv2d(2, 3, 3).to(dt.bfloat16)
    x = dt.randn(1, 2, 4, 4).bfloat16()
    made = dt.onnx.export(model, (x,), opset_version=17)  # (runtimes take no such arrays)
    found = dt.onnx.load(made.model_proto.SerializeToString())(x)
    assert found.dtype is dt.bfloat16 and dt.allclose(found.float(), model(x).float(), 2e-2, 2e-2)
    assert operators(made).count("Conv") == 1 and "Cast" in operators(made)


@pytest.mark.parametrize("mode", ["mean", "max"])
def test_bags_that_begin_where_offsets_say(mode):
    bag = nn.EmbeddingBag(20, 5, mode=mode, padding_idx=0)
    x, offsets = dt.randint(0, 20, (7,)), dt.tensor([0, 2, 5])
    more = (dt.randint(0, 3, (9,)), dt.tensor([0, 0, 4, 9]))
    written(bag, (x, offsets), more, dynamic=({0: "n"}, {0: "bags"}), opset_version=18)
    written(bag, (x.reshape(1, 7),), (more[0].reshape(3, 3),), dynamic=({0: "bags", 1: "n"},),
            opset_version=18)  # fmt: skip


def test_a_write_through_a_view_of_any_batch():
    def fn(x):
        y = x.clone()
        y.view(y.shape[0], 2, -1).mul_(2)
        y.view(-1, 2)[1:] += 1
        return y

    given = [(dt.randn(n, 4),) for n in (3, 5)]
    written(fn, *given, dynamic=({0: "n"},))


def test_tensors_of_sizes():
    def fn(x):
        h, w = x.shape
        return (
            dt.tensor([h, 3, w]), dt.tensor([[h / 2, 1.5], [w, -2]]),
            dt.as_tensor([w], dtype=dt.float64),
            x.new_tensor(x.shape), x * dt.tensor((h, w), dtype=dt.int32).sum(),
        )  # fmt: skip

    given = [(dt.randn(*s),) for s in ((3, 4), (2, 7))]
    written(fn, *given, dynamic=({0: "h", 1: "w"},))


def test_a_script_is_written_with_the_arguments_given():
    class Script(nn.ReLU):
        @property
        def program(self):
            raise CaptureError("call it once")

    assert operators(written(Script(), (dt.randn(3),))) == ["Relu"]


def test_causal_attention_with_dropout_of_any_length():
    def fn(q):
        return F.scaled_dot_product_attention(q, q, q, is_causal=True, dropout_p=1e-9)

    written(fn, (dt.randn(1, 2, 4, 8),), (dt.randn(2, 2, 7, 8),), dynamic=({0: "b", 2: "t"},))


def test_shapes_that_do_not_fit_are_told_by_name():
    made = dt.onnx.export(nn.Linear(3, 2), (dt.randn(2, 3),), dynamic=({0: "n"},))
    with pytest.raises(ShapeError, match="input: dimension 1 is 4; 3 is needed"):
        made(dt.randn(2, 4))
