"""Requests into arrays, results into answers."""

import json

import ml_dtypes
import numpy as np
import pytest

from disttrain.serve.coding import Limits, answer, dtype_of, read
from disttrain.serve.refusal import Refused
from disttrain.serve.signature import DATATYPES, Signature, Spec

LIMITS = Limits(1 << 20, 32)


def one(dtype="float32", shape=("b", 3)):
    dims = {s: (1, 8) for s in shape if isinstance(s, str)}
    batch = "b" if shape[:1] == ("b",) else ""
    return Signature((Spec("x", dtype, shape),), (Spec("y", dtype, shape),), dims, batch)


def asked(signature, entry=None, head=None, tail=b"", **more):
    spec = signature.inputs[0]
    whole = {
        "name": "x",
        "datatype": spec.datatype,
        "shape": [2, 3],
        "data": [1, 2, 3, 4, 5, 6],
        **(entry or {}),
    }
    whole = {k: v for k, v in whole.items() if v is not ...}
    text = json.dumps({"inputs": [whole], **more}).encode()
    return read(signature, text + tail, str(len(text)) if tail and head is None else head, LIMITS)


def test_a_request_in_json() -> None:
    found = asked(one(), id="a", parameters={"timeout": 1500})
    np.testing.assert_array_equal(found.arrays[0], np.float32([[1, 2, 3], [4, 5, 6]]))
    assert (found.id, found.rows, found.key, found.timeout) == ("a", 2, ((3,),), 0.0015)
    assert asked(one(), parameters={"timeout": 0}).timeout is None  # as Triton's clients mean it
    assert asked(one(), parameters={"timeout": 1 << 63}).timeout > 1e5
    assert found.outputs == [(0, False)] and found.arrays[0].dtype == np.float32
    nested = asked(one(), {"data": [[1, 2, 3], [4, 5, 6]]})
    np.testing.assert_array_equal(nested.arrays[0], found.arrays[0])


@pytest.mark.parametrize("dtype", DATATYPES)
def test_every_type_goes_there_and_back(dtype) -> None:
    signature, kind = one(dtype), dtype_of(dtype)
    values = np.array([[0, 1, 0], [1, 1, 0]]).astype(kind)
    data = [
        v.item()
        for v in np.array([[0, 1, 0], [1, 1, 0]]).astype(bool if dtype == "bool" else int).ravel()
    ]
    for found in (
        asked(signature, {"data": data}),
        asked(
            signature,
            {"data": ..., "parameters": {"binary_data_size": values.nbytes}},
            tail=values.tobytes(),
        ),
    ):
        assert found.arrays[0].dtype == kind
        assert found.arrays[0].tobytes() == values.tobytes()
        (text,), head = answer("m", "1", signature, found, [values])
        told = json.loads(text)["outputs"][0]
        assert head == 0 and told["data"] == data and told["datatype"] == DATATYPES[dtype]
        found.outputs = [(0, True)]
        (text, tail), head = answer("m", "1", signature, found, [values])
        assert head == len(text) and tail == values.tobytes()
        assert json.loads(text)["outputs"][0]["parameters"] == {"binary_data_size": values.nbytes}


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("float32", [1, 2, 3, 4, 5, True]),
        ("float32", [True] * 6),
        ("float32", [1e39, 0, 0, 0, 0, 0]),
        ("float32", [None] * 6),
        ("float32", ["1"] * 6),
        ("float32", [1, "1", 2, 3, 4, 5]),
        ("int8", [128, 0, 0, 0, 0, 0]),
        ("int64", [0.5, 0, 0, 0, 0, 0]),
        ("int64", [1.0, 0, 0, 0, 0, 0]),
        ("int64", [2**63, 0, 0, 0, 0, 0]),
        ("uint64", [2**64, 0, 0, 0, 0, 0]),
        ("uint8", [-1, 0, 0, 0, 0, 0]),
        ("bool", [0, 1, 0, 1, 0, 1]),
        ("float32", [[1, 2, 3], [4, 5]]),
        ("float32", [1, 2, 3, 4, 5]),
        ("float32", [[1, 2], [3, 4], [5, 6]]),
        ("float32", {}),
    ],
)
def test_numbers_that_do_not_fit_are_refused(dtype, data) -> None:
    with pytest.raises(Refused, match="input x") as caught:
        asked(one(dtype), {"data": data})
    assert caught.value.status == 400


def test_numbers_at_the_borders_of_types_are_taken() -> None:
    big = asked(one("uint64"), {"data": [2**64 - 1, 1, 2**63, 0, 0, 0]}).arrays[0]
    assert big.ravel().tolist() == [2**64 - 1, 1, 2**63, 0, 0, 0]
    least = asked(one("int64"), {"data": [-(2**63), 2**63 - 1, 0, 0, 0, 0]}).arrays[0]
    assert least.ravel().tolist()[:2] == [-(2**63), 2**63 - 1]
    odd = asked(one(), {"data": [float("nan"), float("inf"), 1e-60, 0, 0, 0]}).arrays[0].ravel()
    assert np.isnan(odd[0]) and np.isinf(odd[1]) and odd[2] == 0


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"name": "w"}, "there is no 'w'"),
        ({"datatype": "FP64"}, "FP32 is needed"),
        ({"shape": [2, -3]}, "no size"),
        ({"shape": [True, 6]}, "no size"),
        ({"shape": 6}, "list of sizes"),
        ({"shape": [1] * 40}, "list of sizes"),
        ({"shape": [1 << 39, 1 << 39], "data": []}, "is needed"),
        ({"shape": [9, 3], "data": [0] * 27}, "1 to 8"),
        ({"shape": [0, 3], "data": []}, "1 to 8"),
        ({"shape": [3, 2]}, r"\[b, 3\]"),
        ({"data": ...}, "data, a list"),
        ({"parameters": 3}, "an object"),
        ({"parameters": {"shared_memory_region": "r"}}, "not supported"),
        ({"parameters": {"binary_data_size": 24}}, "both"),
        ({"data": ..., "parameters": {"binary_data_size": 24}}, "without Inference"),
    ],
)
def test_wrong_inputs_are_named(entry, told) -> None:
    with pytest.raises(Refused, match=told):
        asked(one(), entry)


def test_binary_tensors_are_as_long_as_they_say() -> None:
    for size, tail, told in [
        (23, bytes(23), "needs 24"),
        (24, bytes(23), "23 bytes are left"),
        (24, bytes(25), "1 bytes after"),
        (-1, bytes(24), "a number"),
        (1 << 80, bytes(24), "are left"),
    ]:
        with pytest.raises(Refused, match=told):
            asked(one(), {"data": ..., "parameters": {"binary_data_size": size}}, tail=tail)
    for head in ("-1", "x", "1e9", "99999"):
        with pytest.raises(Refused, match="Inference-Header-Content-Length"):
            asked(one(), head=head)
    entry = {"data": ..., "parameters": {"binary_data_size": 6}}
    with pytest.raises(Refused, match="0 or 1"):
        asked(one("bool"), entry, tail=bytes([0, 1, 2, 0, 0, 0]))


def test_outputs_are_chosen_each_in_its_form() -> None:
    two = Signature(
        (Spec("x", "float32", ("b", 3)),),
        (Spec("y", "float32", ("b", 3)), Spec("z", "int64", ("b",))),
        {"b": (1, None)},
        "b",
    )
    found = asked(two, outputs=[{"name": "z", "parameters": {"binary_data": True}}, {"name": "y"}])
    assert found.outputs == [(1, True), (0, False)]
    parts, head = answer("m", "3", two, found, [np.zeros((2, 3), np.float32), np.array([7, 8])])
    told = json.loads(parts[0])
    assert [o["name"] for o in told["outputs"]] == ["z", "y"] and "id" not in told
    assert parts[1] == np.array([7, 8]).tobytes() and len(parts[0]) == head
    whole = asked(two, parameters={"binary_data_output": True})
    assert whole.outputs == [(0, True), (1, True)]
    for outputs in ([{"name": "w"}], [{"name": "y"}, {"name": "y"}], 3, [3]):
        with pytest.raises(Refused, match="outputs"):
            asked(two, outputs=outputs)


def test_sixteen_bit_floats_are_numbers_in_json() -> None:
    signature = one("bfloat16")
    found = asked(signature, {"data": [1.5, 2, 3, 4, 5, 6]})
    assert found.arrays[0].dtype == ml_dtypes.bfloat16
    (text,), _ = answer("m", "1", signature, found, found.arrays)
    assert json.loads(text)["outputs"][0]["data"] == [1.5, 2, 3, 4, 5, 6]


def test_a_missing_input_is_named() -> None:
    with pytest.raises(Refused, match="x is missing"):
        read(one(), b'{"inputs": []}', None, LIMITS)
