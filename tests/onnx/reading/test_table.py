"""The table of operators: versions, and what a row says."""

from __future__ import annotations

import inspect
import pickle

import onnx
import pytest

from disttrain.onnx.reading import operators, table

assert operators
# Not here, and why.
LEFT_OUT = {
    "ImageDecoder": "no decoder of pictures is among our dependencies",
}


def test_every_operator_of_onnx_has_a_row_or_is_named_here():
    newest = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
    by_function = {s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and s.has_function}
    assert newest - set(table.names()) - by_function == set(LEFT_OUT)


def test_the_row_for_a_version_is_the_one_that_says_so():
    assert table.find("", "Softmax", 12) is not table.find("", "Softmax", 13)
    assert table.find("", "GroupNormalization", 18) is not table.find("", "GroupNormalization", 21)
    assert table.find("", "Add", 6) is not table.find("", "Add", 7)
    assert table.find("", "Add", 7) is table.find("", "Add", 20)
    assert table.find("", "None", 7) is None
    assert table.find("mine", "Add", 7) is None


@pytest.mark.parametrize("schema", [
    s for s in onnx.defs.get_all_schemas_with_history()
    if s.since_version >= 7 and s.domain == "" and s.name not in LEFT_OUT and not s.deprecated
], ids=lambda s: f"{s.name}-{s.since_version}")  # fmt: skip
def test_functions_take_all_inputs_and_attributes_of_every_version(schema):
    row = table.find("", schema.name, schema.since_version)
    if row is None:
        assert schema.has_function
        return
    kinds = inspect.signature(row.function).parameters.values()
    most = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in kinds)
    many = any(p.kind is p.VAR_POSITIONAL for p in kinds)
    assert many or len(schema.inputs) <= most
    missing = [name for name in schema.attributes if not row.accepts(name)]
    assert not missing or schema.has_function


def test_a_call_tells_types_of_few_bits():
    call = table.Call(1, 17, None, (0, 22))
    assert call.narrow_type(1) == 22
    assert call.narrow_type(0) == call.narrow_type(5) == 0


def test_rows_travel_by_their_places():
    for name in table.names():
        for version in (6, 12, 20):
            row = table.find("", name, version)
            assert row is None or pickle.loads(pickle.dumps(row)) is row
