"""Shapes of requests; which dimension batches lie along."""

import json

import pytest

from disttrain.errors import ConfigError, ShapeError
from disttrain.serve.signature import Signature, Spec, check_servable, joined_along


def spec(*shape, name="x", dtype="float32"):
    return Spec(name, dtype, shape)


def test_it_travels_as_json() -> None:
    signature = Signature(
        (spec("batch", 3), spec("batch", "length + 1", name="z", dtype="int64")),
        (spec("batch", name="y", dtype="bool"),),
        {"batch": (1, 64), "length": (0, None)},
        "batch",
    )
    assert Signature.read(json.loads(json.dumps(signature.told()))) == signature
    assert signature.inputs[1].metadata() == {"name": "z", "datatype": "INT64", "shape": [-1, -1]}
    assert signature.rows_limit(32) == 32 and signature.rows_limit(100) == 64


def test_sizes_with_one_name_are_equal_and_in_their_range() -> None:
    pair = Signature((spec("b", 3), spec("b", "n", name="z")), (), {"b": (1, 4), "n": (2, None)})
    sizes: dict[str, int] = {}
    pair.check(0, (2, 3), sizes)
    pair.check(1, (2, 7), sizes)
    pair.check_ranges(sizes)
    assert sizes == {"b": 2, "n": 7}
    for position, shape, told in [
        (0, (2,), "2 dimensions"),
        (0, (2, 4), r"\[b, 3\] is needed"),
        (1, (3, 7), "b is 2 elsewhere"),
    ]:
        with pytest.raises(ShapeError, match=told):
            pair.check(position, shape, dict(sizes))
    for wrong in ({"b": 5}, {"b": 0}, {"n": 1}):
        with pytest.raises(ShapeError, match="is needed"):
            pair.check_ranges(wrong)


@pytest.mark.parametrize(
    ("inputs", "outputs", "along"),
    [
        ([("b", 3)], [("b",)], "b"),
        ([("b", 3), ("b", "n")], [("b", "n")], "b"),
        ([(3, "b")], [("b", 3)], ""),  # not the first one
        ([("b", 3), (3,)], [("b",)], ""),  # an input that all rows share
        ([("b", "b")], [("b",)], ""),
        ([("b", "n")], [("b", "2*b + n")], ""),  # rows have each other's number in them
        ([("b", 3)], [()], ""),
        ([("b", 3)], [("c", 3)], ""),
        ([("2*b", 3)], [("2*b", 3)], ""),
        ([(4, 3)], [(4, 3)], ""),
        ([], [], ""),
    ],
)
def test_only_a_named_first_size_of_all_is_a_batch(inputs, outputs, along) -> None:
    found = joined_along([spec(*s) for s in inputs], [spec(*s) for s in outputs], ["b", "n", "c"])
    assert found == along


def test_types_that_the_protocol_lacks_are_named() -> None:
    check_servable("m", [spec(2, dtype="bfloat16")])
    with pytest.raises(ConfigError, match="m: x has elements of type complex64"):
        check_servable("m", [spec(2, dtype="complex64")])
