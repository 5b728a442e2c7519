"""Files of models: what is decoded, numbers beside them, and what is refused."""

from __future__ import annotations

import io
import os

import numpy as np
import onnx
import pytest

import disttrain as dt
from disttrain.errors import SerializationError
from support.onnx_graphs import array, classifier, model, node

X = np.ones((2, 1, 6, 6), np.float32)


def test_a_path_bytes_an_open_file_and_a_message_are_the_same_model(tmp_path):
    made = classifier()
    path = tmp_path / "m.onnx"
    onnx.save(made, path)
    data = made.SerializeToString()
    want = dt.onnx.load(made).run({"x": X})["y"]
    for source in (path, str(path), data, bytearray(data), io.BytesIO(data)):
        assert np.array_equal(dt.onnx.load(source).run({"x": X})["y"], want)
    with path.open("rb") as file:
        assert np.array_equal(dt.onnx.load(file).run({"x": X})["y"], want)


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"no model", b"\x3a\xff\xff\xff\xff\x0f", b"PK\x03\x04"]
)
def test_what_is_no_model_is_refused(data, tmp_path):
    (tmp_path / "m.onnx").write_bytes(data)
    for source in (data, tmp_path / "m.onnx"):
        with pytest.raises(SerializationError, match=r"no model in ONNX's format|decod|graph"):
            dt.onnx.load(source)


def test_a_path_that_is_no_file_is_said(tmp_path):
    with pytest.raises(SerializationError, match="a folder"):
        dt.onnx.load(tmp_path)
    with pytest.raises(SerializationError, match="cannot be read"):
        dt.onnx.load(tmp_path / "none.onnx")


def outside(location: str, **more: str) -> onnx.ModelProto:
    """A model whose weight lies in another file."""
    made = model([node("Add", "x w", "y")], ["x"], ["y"], (array("w", [1.0, 2.0]),))
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=value)
    return made


def test_numbers_beside_a_model_are_read(tmp_path):
    (tmp_path / "weights").mkdir()
    numbers = np.array([5.0, 7.0], np.float32).tobytes()
    (tmp_path / "weights" / "w.bin").write_bytes(b"1234" + numbers)
    onnx.save(outside("weights/w.bin", offset="4", length="8"), tmp_path / "m.onnx")
    out = dt.onnx.load(tmp_path / "m.onnx").run({"x": np.zeros(2, np.float32)})["y"]
    assert out.tolist() == [5.0, 7.0]


def test_what_the_package_saves_in_two_files_is_read(tmp_path):
    made = classifier()
    want = dt.onnx.load(made).run({"x": X})["y"]
    onnx.save(
        made, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data"
    )
    assert np.array_equal(dt.onnx.load(tmp_path / "m.onnx").run({"x": X})["y"], want)


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "/etc/hostname",
        "",
        "link.bin",
        "up/../../secret.bin",
        "none.bin",
        "a\0b",
        ".",
    ],
)
def test_numbers_are_never_taken_from_outside_of_the_folder(location, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8)
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    onnx.save(outside(location), folder / "m.onnx")
    with pytest.raises(SerializationError, match=r"'w'.*needed is a file in the model's folder"):
        dt.onnx.load(folder / "m.onnx")


@pytest.mark.parametrize(
    "more",
    [
        {"offset": "4"},
        {"offset": "-1"},
        {"offset": "9" * 30},
        {"length": "16"},
        {"length": "x"},
        {"offset": "100"},
    ],
)
def test_places_in_a_file_are_checked(more, tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    onnx.save(outside("w.bin", **more), tmp_path / "m.onnx")
    with pytest.raises(SerializationError, match="'w'"):
        dt.onnx.load(tmp_path / "m.onnx")


def test_bytes_have_no_folder(tmp_path):
    with pytest.raises(SerializationError, match="load the model by its path"):
        dt.onnx.load(outside("w.bin").SerializeToString())


def test_a_message_is_left_as_it_was(tmp_path):
    made = classifier()
    before = made.SerializeToString()
    dt.onnx.load(made)
    assert made.SerializeToString() == before
