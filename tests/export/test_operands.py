"""Arguments that do not fit each other are refused before a kernel reads memory by them."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.null import NullArray
from disttrain.errors import SerializationError, ShapeError
from disttrain.export import files, operands, vocabulary
from disttrain.nn import functional as F

_PLAIN = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
_POOL = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1),
         "ceil_mode": False}  # fmt: skip
_LSTM = {"mode": "LSTM", "backwards": False, "keep": False}
GOOD = {
    "batch_norm": ([(6, 4, 8), (4,), (4,)], {"eps": 1e-5}),
    "batch_norm_known": ([(6, 4), (4,), (4,), None, (4,)], {"eps": 1e-5}),
    "group_norm": ([(6, 4, 8), (4,), (4,)], {"groups": 2, "eps": 1e-5}),
    "conv": ([(2, 4, 5, 4), (6, 4, 3, 2), (6,)], _PLAIN),
    "conv_input_grad": ([(2, 6, 3, 3), (6, 4, 3, 2)], {**_PLAIN, "size": (5, 4)}),
    "conv_weight_grad": ([(2, 6, 3, 3), (2, 4, 5, 4)], {**_PLAIN, "kernel": (3, 2)}),
    "integer_linear": ([(3, 5), np.int8, (4,), (4,), (4,)], {"x_scale": 0.1, "x_zero": 7}),
    "dynamic_linear": (
        [(3, 5), np.int8, (), None, (4,)],
        {"own": 1, "symmetric": False, "low": 0, "high": 255},
    ),
    "weight_int8_linear": ([(3, 5), np.int8, (4,), None], {}),
    "polygamma": ([(3,)], {"n": 2}),
    "max_pool_spread": ([(2, 3, 4, 2), (2, 3, 8, 5), (2, 3, 4, 2)], _POOL),
    "max_pool_pick": ([(2, 3, 8, 5), (2, 3, 8, 5), (2, 3, 4, 2)], _POOL),
    "max_pool_indices": ([(2, 3, 8, 5), (2, 3, 4, 2)], _POOL),
    "ldl_solve": ([(3, 3), (3,), (3, 2)], {"hermitian": False}),
    "recurrence": ([(5, 2, 12), (12, 3), (12,), (2, 3), (2, 3), None, None], _LSTM),
    "top_places": ([(3, 4)], {"k": 3, "dim": 1, "largest": True}),
    "sparse_product": ([(9,), (4, 2), (9,), (9,)], {"size": 3}),
    "sampled_product": ([(4, 2), (5, 2), (9,), (9,)], {}),
}
ODD = {  # for each: what is put in the place of an argument (or parameter)
    "batch_norm": [(1, (3,)), (2, ()), (0, (4,))],
    "batch_norm_known": [(1, (2,)), (4, (4, 1))],
    "group_norm": [(1, (3,)), ("groups", 3), ("groups", 0), ("groups", -2)],
    "conv": [(2, (3,)), (2, ()), (1, (6, 3, 3, 2)), ("groups", 4), ("groups", 0), (1, (6, 4, 9, 2)),
             ("stride", (0, 1)), ("padding", (-1, 0)), ("dilation", (1, 1, 1)), (0, (2, 4, 5))],
    "conv_input_grad": [(0, (2, 6, 48, 3)), (0, (2, 5, 3, 3)), ("size", (4, 4)), ("groups", 5)],
    "conv_weight_grad": [(0, (2, 6, 4, 3)), (0, (3, 6, 3, 3)), ("kernel", (4, 2)),
                         ("stride", (2**31, 1)), ("kernel", (0, 2))],
    "integer_linear": [(0, (3, 4)), (2, (2,)), (3, (2,)), (4, (2,)), (1, (4, 5))],
    "dynamic_linear": [(4, (2,)), (3, ()), ("own", 2), ("own", -1), (2, 1.5)],
    "weight_int8_linear": [(2, (3,)), (3, (5,))],
    "polygamma": [("n", 1 << 31), ("n", -1)],
    "max_pool_spread": [(0, (2, 3, 4, 4)), (1, (2, 24, 8, 5)), (1, (2, 3, 6, 5)), (2, 1.5),
                        ("stride", (1, 0)), ("kernel", (9, 2))],
    "max_pool_pick": [(0, (2, 3, 8, 6)), (2, (2, 3, 5, 2))],
    "max_pool_indices": [(0, (2, 3, 2, 5)), ("padding", (0,))],
    "ldl_solve": [(1, (2,)), (1, (4,)), (2, (4, 2)), (0, (3, 4)), (0, (3,))],
    "recurrence": [(0, (5, 2, 4)), (1, (12, 4)), (2, (3,)), (3, (2, 4)), (4, (1, 3)), (4, None),
                   (5, (3, 3, 3)), (6, (12, 9)), ("mode", "GRU"), ("mode", "X")],
    "top_places": [("k", 5), ("k", -1), ("dim", -1), ("dim", 2)],
    "sparse_product": [(2, (8,)), (0, (1,)), (1, (4,))],
    "sampled_product": [(2, (1,)), (0, (4, 3)), (1, (5,))],
}  # fmt: skip


def _given(shapes):
    kind = np.dtype(np.float32)
    weight = NullArray((4, 5), np.dtype(np.int8))
    shapes = [weight if s is np.int8 else s for s in shapes]
    return [NullArray(s, kind) if isinstance(s, tuple) else s for s in shapes]


@pytest.mark.parametrize("op", GOOD)
def test_rules(op):
    shapes, params = GOOD[op]
    assert operands.fault(op, _given(shapes), params) is None
    for at, other in ODD[op]:
        new, how = list(shapes), dict(params)
        if isinstance(at, int):
            new[at] = other
        else:
            how[at] = other
        assert operands.fault(op, _given(new), how) is not None, (at, other)


def test_types_of_one_pass():
    shapes, params = GOOD["recurrence"]
    given = _given(shapes)
    given[0] = NullArray(shapes[0], np.dtype(bool))
    assert operands.fault("recurrence", given, params) is not None


def test_dimensions_are_counted_from_the_first():
    given = _given([(3, 4)])
    assert operands.fault("argmax", given, {"dim": None, "keepdim": False}) is None
    assert operands.fault("argmax", given, {"dim": -1, "keepdim": False}) == "dimension -1 of 2"


def _changed(fn, args, name, shape):
    """The file of a function, in which an input has another shape."""
    program = dt.export(fn, args)
    graph = json.loads(json.dumps(files.program_json(program)))
    next(v for v in graph["graph"]["values"] if v[0] == name)[2] = shape
    file = io.BytesIO()
    arrays = {n: t.detach().array for n, t in program.tensors()}
    files.write(file, arrays, {files.FORMAT: json.dumps(graph)})
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("fn", "shapes", "other"),
    [
        (lambda x, w, b: F.conv2d(x, w, b), [(1, 2, 5, 5), (4, 2, 3, 3), (4,)], [3]),
        (lambda x, w, b: F.group_norm(x, 2, w, b), [(3, 4, 8), (4,), (4,)], [2]),
        (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [(3, 4, 8), (4,), (4,)], [2]),
    ],
)
def test_files(fn, shapes, other):
    args = tuple(dt.randn(*s) for s in shapes)
    with pytest.raises(SerializationError, match="do not fit each other"):
        dt.load_program(_changed(fn, args, "b", other))


def test_pivots_are_looked_at():
    ld, _ = dt.linalg.ldl_factor(dt.randn(3, 3))
    b = dt.randn(3, 2)
    for pivots in ([1, 2, 4], [1, 2, 0], [-1, 1, 2], [1, 2, -2], [2**31 - 1] * 3):
        with pytest.raises(ValueError, match="pivots"):
            dt.linalg.ldl_solve(ld, dt.tensor(pivots, dtype=dt.int32), b)
    program = dt.export(
        lambda p: dt.linalg.ldl_solve(ld, p, b), (dt.tensor([1, 2, 3], dtype=dt.int32),)
    )
    with pytest.raises(ShapeError, match="pivots"):
        program(dt.tensor([1, 2, 4], dtype=dt.int32))


def test_values_are_as_they_are_told():
    """A rule for shapes that says less than the operation does is no way to other memory."""
    program = dt.export(lambda x: dt.exp(x).sum(), (dt.randn(3),))
    file = io.BytesIO()
    program.save(file)
    again = dt.load_program(io.BytesIO(file.getvalue()))
    again.graph.values["exp"] = again.graph.values["exp"]._replace(shape=(4,))
    again._check = lambda sizes: None
    for call in (lambda: again(dt.randn(3)), lambda: again.run({"x": np.zeros(3, np.float32)})):
        with pytest.raises(ShapeError, match=r"float32\[3\] was made, float32\[4\] is needed"):
            call()


@pytest.mark.parametrize("given", [(1 << 20, 1 << 10), (1e9, 2), (float("nan"), 2), (-1e9, 2)])
def test_matrices_that_are_too_large(given):
    """(They are made when a file is read, for their shape.)"""
    with pytest.raises(ValueError, match="too large"):
        vocabulary.MAKERS["weights"].shape(of="area", given=given, dtype=np.dtype(np.float32))
