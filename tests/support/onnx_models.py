"""Models drawn by a seed: chains of operators with attributes in many combinations.

Each step takes values that earlier ones made. What onnxruntime computes for a whole model is what
this package must compute; a step that neither can run is left out of the model.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import disttrain as dt
from disttrain.errors import DisttrainError

KINDS = {
    np.dtype(k): v
    for k, v in (
        (np.float32, TensorProto.FLOAT),
        (np.int64, TensorProto.INT64),
        (np.int32, TensorProto.INT32),
        (np.bool_, TensorProto.BOOL),
        (np.uint8, TensorProto.UINT8),
        (np.int8, TensorProto.INT8),
    )
}
UNARY = """Abs Neg Exp Sqrt Floor Ceil Sin Cos Tanh Erf Sign Round Sigmoid Relu Softplus Softsign
HardSwish Identity LeakyRelu Elu Selu HardSigmoid ThresholdedRelu Mish Celu Atan Sinh
Gelu""".split()
BINARY = "Add Sub Mul Max Min Sum Mean".split()
REDUCED = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare".split()


class Model:
    """A model that grows: ``values`` are what its steps made for the drawn inputs."""

    def __init__(self, seed: int, version: int = 20) -> None:
        self.rng, self.version = random.Random(seed), version
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.values: dict[str, np.ndarray] = {}
        for i in range(2):
            shape = tuple(self.rng.randint(1, 6) for _ in range(self.rng.choice((2, 3, 4))))
            self.feeds[f"x{i}"] = self.numbers.standard_normal(shape).astype(np.float32)
        self.values |= self.feeds

    def constant(self, array: Any, kind: Any = np.float32) -> str:
        """The name of an initializer."""
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array, kind), name))
        return name

    def weights(self, *shape: int) -> str:
        """An initializer of drawn numbers."""
        return self.constant(self.numbers.standard_normal(shape) * 0.5)

    def floats(self, test: Callable[[np.ndarray], bool] = lambda a: True) -> str:
        """A value of floating numbers; ``KeyError`` where there is none like that."""
        fits = [n for n, a in self.values.items() if a.dtype == np.float32 and a.size and test(a)]
        if not fits:
            raise KeyError("no such value")
        return self.rng.choice(fits)

    def proto(self, nodes: list, outputs: dict[str, np.ndarray]) -> onnx.ModelProto:
        """A model of ``nodes`` with these results."""

        def ports(arrays: dict) -> list:
            return [
                helper.make_tensor_value_info(
                    n, KINDS[a.dtype], a.shape if n in self.feeds else None
                )
                for n, a in arrays.items()
            ]

        graph = helper.make_graph(
            nodes, "drawn", ports(self.feeds), ports(outputs), self.initializers
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.version)])
        model.ir_version = 9
        return model


def _unary(m: Model) -> tuple:
    kind = m.rng.choice(UNARY)
    words = (
        {"alpha": m.rng.choice((0.1, 0.5, 1.0, 2.0))}
        if kind in ("LeakyRelu", "Elu", "ThresholdedRelu", "Celu")
        else {}
    )
    return kind, [m.floats()], words


def _binary(m: Model) -> tuple:
    a = m.floats()
    shape = m.values[a].shape
    other = [n if m.rng.random() < 0.6 else 1 for n in shape][m.rng.randint(0, len(shape)) :]
    return (
        m.rng.choice([*BINARY, "Div", "Pow"]),
        [a, m.constant(abs(m.numbers.standard_normal(other)) + 0.5)],
        {},
    )


def _compared(m: Model) -> tuple:
    return (
        m.rng.choice("Less Greater LessOrEqual GreaterOrEqual".split()),
        [m.floats(), m.constant(0.1)],
        {},
    )


def _reduced(m: Model) -> tuple:
    a = m.floats()
    ndim = m.values[a].ndim
    axes = m.rng.sample(range(-ndim, 0), m.rng.randint(0, ndim))
    words = {"keepdims": m.rng.randint(0, 1)}
    kind = m.rng.choice(REDUCED)
    if axes and (m.version >= 18 or kind == "ReduceSum"):
        return kind, [a, m.constant(axes, np.int64)], words
    return kind, [a], words | ({"axes": axes} if axes else {})


def _softmax(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim > 0)
    return (
        m.rng.choice(("Softmax", "LogSoftmax", "Hardmax")),
        [a],
        {"axis": m.rng.randint(-m.values[a].ndim, -1)},
    )


def _transpose(m: Model) -> tuple:
    a = m.floats()
    order = list(range(m.values[a].ndim))
    m.rng.shuffle(order)
    return "Transpose", [a], {"perm": order} if order else {}


def _reshape(m: Model) -> tuple:
    a = m.floats()
    shape = m.rng.choice(
        ([0, -1], [-1], [1, -1, 1], [-1, m.values[a].shape[-1] if m.values[a].ndim else 1])
    )
    return "Reshape", [a, m.constant(shape, np.int64)], {}


def _unsqueeze(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim < 5)
    return (
        "Unsqueeze",
        [a, m.constant([m.rng.randint(-m.values[a].ndim - 1, m.values[a].ndim)], np.int64)],
        {},
    )


def _slice(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim > 0)
    n = m.values[a].ndim
    axes = m.rng.sample(range(n), m.rng.randint(1, n))
    step = [m.rng.choice((1, 1, 2, -1)) for _ in axes]
    start = [m.rng.choice((0, 1, -1)) if s > 0 else -1 for s in step]
    end = [m.rng.choice((2**62, -1, 3)) if s > 0 else -(2**62) for s in step]
    return "Slice", [a, *[m.constant(v, np.int64) for v in (start, end, axes, step)]], {}


def _gather(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim > 0)
    axis = m.rng.randrange(m.values[a].ndim)
    n = m.values[a].shape[axis]
    places = m.numbers.integers(-n, n, m.rng.choice(((), (2,), (2, 2))))
    return "Gather", [a, m.constant(places, np.int64)], {"axis": axis}


def _pad(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim > 0)
    n = m.values[a].ndim
    mode = m.rng.choice(("constant", "edge", "reflect"))
    pads = [m.rng.randint(0, 2) for _ in range(2 * n)]
    if mode == "reflect":
        pads = [min(p, s - 1) for p, s in zip(pads, m.values[a].shape * 2)]
    return (
        "Pad",
        [a, m.constant(pads, np.int64), *([m.constant(0.5)] if mode == "constant" else [])],
        {"mode": mode},
    )


def _matmul(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim > 1)
    return "MatMul", [a, m.weights(m.values[a].shape[-1], m.rng.randint(1, 4))], {}


def _gemm(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim == 2)
    flip, n = m.rng.randint(0, 1), m.rng.randint(1, 4)
    k = m.values[a].shape[1]
    b = m.weights(n, k) if flip else m.weights(k, n)
    return "Gemm", [a, b, m.weights(n)], {"transB": flip, "alpha": 0.5, "beta": 2.0}


def _windows(m: Model, a: str) -> dict[str, Any]:
    n = m.values[a].ndim - 2
    words: dict[str, Any] = {"strides": [m.rng.randint(1, 2) for _ in range(n)]}
    if m.rng.random() < 0.3:
        words["auto_pad"] = m.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        words["pads"] = [m.rng.randint(0, 1) for _ in range(2 * n)]
    return words


def _conv(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim in (3, 4))
    c, n = m.values[a].shape[1], m.values[a].ndim - 2
    group = c if m.rng.random() < 0.3 else 1
    kernel = [m.rng.randint(1, 3) for _ in range(n)]
    words = {"group": group, "kernel_shape": kernel} | _windows(m, a)
    if "auto_pad" not in words:
        words["dilations"] = [m.rng.randint(1, 2) for _ in range(n)]
    out = group * m.rng.randint(1, 3)
    return "Conv", [a, m.weights(out, c // group, *kernel), m.weights(out)], words


def _conv_transpose(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim in (3, 4))
    c, n = m.values[a].shape[1], m.values[a].ndim - 2
    kernel = [m.rng.randint(2, 3) for _ in range(n)]
    words = {
        "kernel_shape": kernel,
        "strides": [m.rng.randint(1, 2) for _ in range(n)],
        "pads": [m.rng.randint(0, 1) for _ in range(2 * n)],
    }
    return "ConvTranspose", [a, m.weights(c, m.rng.randint(1, 3), *kernel)], words


def _pool(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim in (3, 4))
    kernel = [min(m.rng.randint(2, 3), n) for n in m.values[a].shape[2:]]
    words = {"kernel_shape": kernel} | _windows(m, a)
    kind = m.rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if kind.startswith("Global"):
        return kind, [a], {}
    words["ceil_mode"] = m.rng.randint(0, 1)
    if kind == "AveragePool":
        words["count_include_pad"] = m.rng.randint(0, 1)
    return kind, [a], words


def _normalized(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim in (3, 4) and v.size > 4)
    shape = m.values[a].shape
    c = m.weights(shape[1])
    kind = m.rng.choice(
        ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN")
    )
    if kind == "BatchNormalization":
        return (
            kind,
            [
                a,
                c,
                m.weights(shape[1]),
                m.weights(shape[1]),
                m.constant(abs(m.numbers.standard_normal(shape[1])) + 0.5),
            ],
            {},
        )
    if kind == "InstanceNormalization":
        return kind, [a, c, m.weights(shape[1])], {}
    if kind == "LayerNormalization":
        return kind, [a, m.weights(shape[-1]), m.weights(shape[-1])], {"axis": -1}
    return kind, [a], {"size": m.rng.choice((1, 3))}


def _resize(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim == 4)
    scales = [1.0, 1.0, m.rng.choice((0.5, 1.5, 2.0)), m.rng.choice((1.0, 2.0, 3.0))]
    mode = m.rng.choice(("nearest", "linear", "cubic"))
    how = m.rng.choice(("half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"))
    words = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        words["nearest_mode"] = m.rng.choice(
            ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        )
    return "Resize", [a, "", m.constant(scales)], words


def _concat(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim > 0)
    return "Concat", [a, a], {"axis": m.rng.randint(-m.values[a].ndim, -1)}


def _where(m: Model) -> tuple:
    bools = [n for n, a in m.values.items() if a.dtype == np.bool_]
    if not bools:
        return _compared(m)
    return "Where", [m.rng.choice(bools), m.constant(1.5), m.constant(-0.5)], {}


def _expand(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim < 4)
    return "Expand", [a, m.constant([2, *[1] * m.values[a].ndim], np.int64)], {}


def _arg(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim > 0)
    return (
        m.rng.choice(("ArgMax", "ArgMin")),
        [a],
        {"axis": m.rng.randint(-m.values[a].ndim, -1), "keepdims": m.rng.randint(0, 1)},
    )


def _cumulative(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim > 0)
    words = {"exclusive": m.rng.randint(0, 1), "reverse": m.rng.randint(0, 1)}
    return "CumSum", [a, m.constant(m.rng.randint(-m.values[a].ndim, -1), np.int64)], words


def _recurrent(m: Model) -> tuple:
    a = m.floats(lambda v: v.ndim == 3)
    kind, hidden = m.rng.choice(("LSTM", "GRU", "RNN")), m.rng.randint(1, 4)
    direction = m.rng.choice(("forward", "reverse", "bidirectional"))
    d, gates = 2 if direction == "bidirectional" else 1, {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    words: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if kind == "GRU":
        words["linear_before_reset"] = m.rng.randint(0, 1)
    if m.rng.random() < 0.3:
        words["clip"] = 0.5
    weights = [
        m.weights(d, gates * hidden, m.values[a].shape[2]),
        m.weights(d, gates * hidden, hidden),
    ]
    return kind, [a, *weights, m.weights(d, 2 * gates * hidden)], words


def _quantized(m: Model) -> tuple:
    bytes_ = [n for n, a in m.values.items() if a.dtype == np.uint8 and a.ndim > 1]
    if bytes_ and m.rng.random() < 0.7:
        return (
            "DequantizeLinear",
            [m.rng.choice(bytes_), m.constant(0.05), m.constant(100, np.uint8)],
            {},
        )
    return "QuantizeLinear", [m.floats(), m.constant(0.05), m.constant(100, np.uint8)], {}


MAKERS: tuple[Callable[[Model], tuple], ...] = (
    _unary,
    _binary,
    _compared,
    _reduced,
    _softmax,
    _transpose,
    _reshape,
    _unsqueeze,
    _slice,
    _gather,
    _pad,
    _matmul,
    _gemm,
    _conv,
    _conv_transpose,
    _pool,
    _normalized,
    _resize,
    _concat,
    _where,
    _expand,
    _arg,
    _cumulative,
    _recurrent,
    _quantized,
)


def drawn(
    seed: int, ours: Callable, theirs: Callable, steps: int = 6, version: int = 20
) -> tuple[Model, list]:
    """A model, and the steps of it that differ between ``ours`` and ``theirs``, which give a
    model's result or None where it cannot be run."""
    m, differences = Model(seed, version), []
    for i in range(steps):
        try:
            kind, inputs, words = m.rng.choice(MAKERS)(m)
        except KeyError:
            continue
        node = helper.make_node(kind, inputs, [f"y{i}"], f"n{i}", **words)
        proto = m.proto([*m.nodes, node], {f"y{i}": np.zeros(0, _kind(kind))})
        want = theirs(proto, m.feeds)
        found = ours(proto, m.feeds)
        if want is None and found is None:
            continue
        if want is None:  # theirs has less; ours goes on
            continue
        if found is None or not close(found, want):
            differences.append((kind, words, None if found is None else found, want, proto))
            continue
        if (
            want.size > 20000
            or not np.isfinite(want.astype(np.float64)).all()
            or abs(want).max(initial=0) > 1e4
        ):
            continue
        m.nodes.append(node)
        m.values[f"y{i}"] = want
    return m, differences


def _kind(operator: str) -> Any:
    if operator in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
        return np.bool_
    if operator.startswith("Arg"):
        return np.int64
    return np.uint8 if operator == "QuantizeLinear" else np.float32


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two results are the same up to rounding."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool(
            np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0) <= (a.dtype == np.uint8)
        )
    return bool(
        np.allclose(
            a,
            b,
            rtol=1e-4,
            atol=1e-4 * max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0))),
            equal_nan=True,
        )
    )


def ours(made: onnx.ModelProto, feeds: dict) -> np.ndarray | None:
    """By this package; None for what it refuses."""
    try:
        return next(iter(dt.onnx.load(made).run(feeds).values()))
    except DisttrainError:
        return None


def theirs(made: onnx.ModelProto, feeds: dict) -> np.ndarray | None:
    """By onnxruntime, on one thread, silently."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            made.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, feeds)[0]
    except Exception:
        return None
