"""A model as a module: its state, its inputs, training, compilation, export, copies, threads."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DTypeError, ShapeError
from support.onnx_graphs import FLOAT, INT64, array, classifier, model, node, port
from support.onnx_models import close, drawn, ours

X = np.random.default_rng(0).standard_normal((2, 1, 6, 6)).astype(np.float32)


def test_initializers_are_parameters_and_buffers_by_name():
    loaded = dt.onnx.load(classifier())
    assert {n for n, _ in loaded.named_parameters()} == {
        "conv.weight",
        "conv.bias",
        "norm.weight",
        "norm.bias",
        "fc.weight",
        "fc.bias",
    }
    assert {n for n, _ in loaded.named_buffers()} == {"norm.mean", "norm.var"}
    assert all(p.requires_grad for p in loaded.parameters())


def test_names_that_no_module_can_have_are_changed():
    names = ["a", "a.b", "forward", "x.", ".y", "training", "1", "a/b:0", "state_dict.w"]
    nodes = [node("Add", "x w0", "v0")]
    nodes = []
    last = "x"
    for i, name in enumerate(names):
        made = node("Add", "p q", f"v{i}")
        made.input[:] = [last, name]
        nodes.append(made)
        last = f"v{i}"
    made = model(nodes, ["x"], [last], tuple(array(n, [float(i)]) for i, n in enumerate(names)))
    loaded = dt.onnx.load(made)
    assert set(loaded.qualified_names) == set(names)
    state = loaded.state_dict()
    assert len(state) == len(names)
    for i, name in enumerate(names):
        assert state[loaded.qualified_names[name]].tolist() == [float(i)], name
    assert loaded.run({"x": np.zeros(1, np.float32)})[last].tolist() == [36.0]
    other = dt.onnx.load(made)
    other.load_state_dict(state)


def test_inputs_by_place_and_by_name():
    loaded = dt.onnx.load(classifier())
    x = dt.tensor(X)
    want = loaded(x)
    assert want.shape == (2, 3)
    assert np.array_equal(loaded(x=x).detach().numpy(), want.detach().numpy())
    assert "x[batch, 1, 6, 6] -> y[batch, 3]" in repr(loaded)


@pytest.mark.parametrize(
    ("args", "words", "error", "text"),
    [
        ((), {}, ConfigError, "input 'x' was not given; it takes x"),
        ((X, X), {}, ConfigError, "2 values were given"),
        ((X,), {"x": X}, ConfigError, "given twice"),
        ((), {"z": X}, ConfigError, "no input 'z'"),
        ((X.astype(np.float64),), {}, DTypeError, "'x' is disttrain.float64; needed is FLOAT"),
        (
            (X[:, :, :5],),
            {},
            ShapeError,
            r"shape \(2, 1, 5, 6\); needed is x\[batch, 1, 6, 6\], batch=2",
        ),
        ((X[0],), {}, ShapeError, r"shape \(1, 6, 6\)"),
    ],
)
def test_wrong_inputs_are_told_by_name(args, words, error, text):
    loaded = dt.onnx.load(classifier())
    with pytest.raises(error, match=text):
        loaded(*args, **words)


def test_sizes_of_one_name_must_be_equal():
    made = model(
        [node("Concat", "a b", "y", axis=1)],
        [port("a", FLOAT, ["n", 2]), port("b", FLOAT, ["n", 3])],
        ["y"],
    )
    loaded = dt.onnx.load(made)
    assert loaded(dt.ones(4, 2), dt.ones(4, 3)).shape == (4, 5)
    with pytest.raises(ShapeError, match=r"'b' has shape \(5, 3\); needed is b\[n, 3\], n=4"):
        loaded(dt.ones(4, 2), dt.ones(5, 3))


def test_it_can_be_trained_and_its_averages_stay():
    loaded = dt.onnx.load(classifier())
    optimizer = dt.optim.Adam(loaded.parameters(), lr=0.05)
    x, target = (
        dt.tensor(np.random.default_rng(1).standard_normal((8, 1, 6, 6)).astype(np.float32)),
        dt.arange(8) % 3,
    )
    losses = []
    for _ in range(20):
        loss = dt.nn.functional.cross_entropy(loaded(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.8 * losses[0]
    assert loaded.get_buffer("norm.mean").tolist() == [0.0] * 4


def test_compiled_calls_give_the_same_bits():
    loaded = dt.onnx.load(classifier())
    compiled = dt.compile(loaded)
    for _ in range(3):
        assert np.array_equal(
            compiled(dt.tensor(X)).detach().numpy(), loaded(dt.tensor(X)).detach().numpy()
        )


def test_it_is_exported_with_a_batch_of_any_size():
    loaded = dt.onnx.load(classifier())
    program = dt.export(loaded, (dt.tensor(X),), dynamic={"x": {0: "batch"}})
    assert "conv.weight" in program.state
    assert [v.name for v in program.inputs] == ["x"]
    for n in (1, 2, 5):
        x = dt.ones(n, 1, 6, 6)
        assert np.array_equal(program(x=x).detach().numpy(), loaded(x).detach().numpy())


def test_copies_are_apart_and_state_goes_from_one_to_the_other():
    loaded = dt.onnx.load(classifier())
    copied = copy.deepcopy(loaded)
    with dt.no_grad():
        copied.get_parameter("fc.bias").add_(1.0)
    assert copied.forward.model is copied
    a, b = loaded.run({"x": X})["y"], copied.run({"x": X})["y"]
    assert np.allclose(b - a, 1.0)
    loaded.load_state_dict(copied.state_dict())
    assert np.array_equal(loaded.run({"x": X})["y"], b)


@pytest.mark.parametrize("name", ["float64", "float16", "bfloat16"])
def test_inputs_are_of_the_type_that_the_module_was_made(name):
    kind = getattr(dt, name)
    loaded = dt.onnx.load(classifier())
    want = loaded(dt.tensor(X))
    loaded.to(kind)
    out = loaded(dt.tensor(X).to(kind))
    assert out.dtype == kind
    assert np.allclose(out.float().detach().numpy(), want.detach().numpy(), atol=0.1)
    with pytest.raises(DTypeError, match=f"'x' is disttrain.float32; needed is .*made .*{name}"):
        loaded(dt.tensor(X))
    copied = copy.deepcopy(loaded).float()
    assert copied(dt.tensor(X)).dtype == dt.float32
    assert loaded(dt.tensor(X).to(kind)).dtype == kind


def test_what_a_model_casts_and_makes_follows_the_type_of_the_module():
    made = model(
        [
            node("Cast", "n", "a", to=FLOAT),
            node("ConstantOfShape", "s", "b"),
            node("Add", "a b", "c"),
            node("MatMul", "c w", "y"),
        ],
        [port("n", INT64, [2, 3])],
        ["y"],
        (array("w", np.ones((3, 2))), array("s", [2, 3], np.int64)),
    )
    loaded = dt.onnx.load(made).half()
    assert loaded(dt.ones(2, 3, dtype=dt.int64)).dtype == dt.float16
    assert dt.compile(loaded.double())(dt.ones(2, 3, dtype=dt.int64)).dtype == dt.float64
    assert loaded.float()(dt.ones(2, 3, dtype=dt.int64)).dtype == dt.float32


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"x": X}, "type dict; needed is a tensor.*FLOAT; give values by name"),
        (X.tolist(), "type list; needed"),
        (3.0, "type float; needed"),
        (None, "type NoneType; needed"),
        ("x", "type str; needed"),
        (np.array(["x"], object), "type ndarray; needed"),
    ],
)
def test_what_is_no_tensor_is_told(value, text):
    with pytest.raises(DTypeError, match=text):
        dt.onnx.load(classifier())(value)
    with pytest.raises(ConfigError, match=r"list was given; needed are arrays by the names"):
        dt.onnx.load(classifier()).run([X])


def test_threads_call_it_at_once():
    loaded = dt.onnx.load(classifier())
    want = loaded.run({"x": X})["y"]
    found, threads = [], []
    for _ in range(4):
        threads.append(
            threading.Thread(
                target=lambda: found.extend(loaded.run({"x": X})["y"] for _ in range(5))
            )
        )
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(found) == 20 and all(np.array_equal(f, want) for f in found)


def test_texts_go_in_and_out():
    made = model(
        [node("StringConcat", "a b", "y")], [port("a", 8, [2])], [port("y", 8, None)], version=20
    )
    made.graph.initializer.add().CopyFrom(
        array("b", 0).__class__(name="b", dims=[1], data_type=8, string_data=[b"!"])
    )
    out = dt.onnx.load(made).run({"a": np.array(["x", "y"], object)})
    assert out["y"].tolist() == ["x!", "y!"]


def test_an_embedding_of_integers():
    made = model(
        [node("Gather", "table at", "y")],
        [port("at", INT64, ["n"])],
        ["y"],
        (array("table", np.eye(3)),),
    )
    loaded = dt.onnx.load(made)
    loaded(dt.tensor([0, -1])).sum().backward()
    assert loaded.get_parameter("table").grad.sum(1).tolist() == [3.0, 0.0, 3.0]


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_drawn_models_on_a_device_are_those_of_the_host(first, double):
    for seed in range(first, first + 10):
        found, _ = drawn(seed, ours, ours)
        name = f"y{max((int(n.name[1:]) for n in found.nodes), default=-1)}"
        if name == "y-1":
            continue
        made = found.proto(found.nodes, {name: found.values[name]})
        loaded = dt.onnx.load(made).cuda()
        feeds = {n: dt.tensor(a, device="cuda") for n, a in found.feeds.items()}
        out = loaded(**feeds)
        assert out.device.type == "cuda"
        assert close(out.detach().cpu().numpy(), found.values[name]), found.nodes


def test_it_travels_to_other_processes_and_works_in_transforms():
    loaded = dt.onnx.load(classifier())
    other = pickle.loads(pickle.dumps(loaded))
    assert np.array_equal(other.run({"x": X})["y"], loaded.run({"x": X})["y"])
    state = {n: p.detach() for n, p in loaded.named_parameters()}

    def loss(parameters, x):
        return (dt.func.functional_call(loaded, parameters, (x,)) ** 2).sum()

    grads = dt.func.grad(loss)(state, dt.tensor(X))
    loss(dict(loaded.named_parameters()), dt.tensor(X)).backward()
    for name, p in loaded.named_parameters():
        assert np.allclose(grads[name].numpy(), p.grad.numpy(), atol=1e-5), name
    each = dt.func.vmap(lambda x: loaded(x.unsqueeze(0)).squeeze(0))(dt.tensor(X))
    assert np.allclose(each.detach().numpy(), loaded.run({"x": X})["y"], atol=1e-5)


def test_names_of_inputs_that_are_no_names_of_python():
    made = model([node("Relu", "x:0", "y")], ["x:0"], ["y"])
    loaded = dt.onnx.load(made)
    assert loaded.run({"x:0": X[0, 0]})["y"].min() == 0.0
    program = dt.export(loaded, (dt.tensor(X),))
    assert np.array_equal(program(dt.tensor(X)).numpy(), np.maximum(X, 0))
