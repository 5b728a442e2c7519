"""``tf.saved_model``: traced functions in a folder, and run again without their code."""

from __future__ import annotations

import json

import numpy as np
import pytest

from disttrain.compat import tensorflow as tf
from disttrain.errors import SerializationError

F32 = np.float32


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(np.arange(6, dtype=F32).reshape(3, 2))
        self.b = tf.Variable(np.ones(2, F32))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def __call__(self, x):
        return tf.nn.relu(tf.matmul(x, self.w) + self.b)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)])
    def parts(self, x, k):
        return {"sum": tf.reduce_sum(x) * k, "double": x * 2.0}

    def plain(self):
        return 3


@pytest.fixture
def folder(tmp_path):
    model = Model()
    tf.saved_model.save(model, str(tmp_path / "m"), signatures={
        "serving_default": model.__call__, "parts": model.parts})  # fmt: skip
    return model, tmp_path / "m"


def test_the_same_numbers(folder):
    model, path = folder
    assert tf.saved_model.contains_saved_model(path)
    again = tf.saved_model.load(path)
    for n in (1, 2, 5):
        x = tf.constant(np.random.default_rng(n).normal(size=(n, 3)).astype(F32))
        assert np.array_equal(again(x).numpy(), model(x).numpy())
        served = again.signatures["serving_default"](x=x)
        assert list(served) == ["output_0"]
        assert np.array_equal(served["output_0"].numpy(), model(x).numpy())
    row = tf.constant(np.ones(4, F32))
    want, got = model.parts(row, tf.constant(F32(3))), again.parts(row, tf.constant(F32(3)))
    assert {k: v.numpy().tolist() for k, v in want.items()} == {
        k: v.numpy().tolist() for k, v in got.items()}  # fmt: skip
    assert set(again.signatures) == {"serving_default", "parts"} and not hasattr(again, "plain")


def test_a_default_and_what_cannot_be_saved(tmp_path):
    tf.saved_model.save(Model(), tmp_path / "m")
    assert list(tf.saved_model.load(tmp_path / "m").signatures) == ["serving_default"]
    with pytest.raises(ValueError, match=r"no tf\.function with an input signature"):
        tf.saved_model.save(tf.Module(), tmp_path / "n")
    with pytest.raises(ValueError, match="is needed"):
        tf.saved_model.save(Model(), tmp_path / "n", signatures=3)
    with pytest.raises(OSError, match="SavedModel file does not exist"):
        tf.saved_model.load(tmp_path / "none")


def test_hostile_folders(folder):
    _, path = folder
    index = json.loads((path / "saved_model.json").read_text())
    for name, part in (("f", "../../etc"), ("f", "function_x"), ("a b", "function_0"), ("f", 3)):
        (path / "saved_model.json").write_text(json.dumps({**index, "functions": {name: part}}))
        with pytest.raises(SerializationError, match=r"tf\.saved_model\.load"):
            tf.saved_model.load(path)
    (path / "saved_model.json").write_text(json.dumps({**index, "version": 2}))
    with pytest.raises(SerializationError, match="newer version"):
        tf.saved_model.load(path)
