"""Assertions, printing, modules, strings, nests and tests of TensorFlow's names."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import disttrain as dt
import disttrain.compat.tensorflow as tf


def test_prints_go_to_the_standard_error(capsys):
    tf.print("loss", tf.constant([1.0, 2.5]), {"a": tf.ones([2])})
    assert capsys.readouterr().err == "loss [1 2.5] {'a': [1 1]}\n"


def test_assertions():
    tf.debugging.assert_equal(1, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Condition x < y did not hold"):
        tf.debugging.assert_less([1, 5], [2, 3])
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad : Tensor had NaN values"):
        tf.debugging.check_numerics([np.nan], "bad")
    with pytest.raises(ValueError, match="must be"):
        tf.debugging.assert_shapes([(tf.ones([2, 3]), ("n", "n"))])

    @tf.function
    def checked(x):
        tf.debugging.assert_greater(x, 0.0)
        return x

    assert float(checked(tf.constant(1.0))) == 1.0
    with pytest.raises(tf.errors.InvalidArgumentError):
        checked(tf.constant(-1.0))


def test_modules_find_their_variables():
    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.parts = [tf.Variable(1.0), {"w": tf.Variable([2.0], trainable=False)}]
            self.inner = tf.Module("inner")
            self.inner.b = tf.Variable(3.0, name="b")

    net = Net()
    assert [v.name for v in net.variables] == ["b:0", "Variable:0", "Variable:0"]
    assert len(net.trainable_variables) == 2
    assert net.submodules == (net.inner,)


def test_nests_are_flattened_by_keys():
    assert tf.nest.flatten({"b": 1, "a": [2, (3,)]}) == [2, 3, 1]
    assert tf.nest.flatten(({"b": 1, "a": 2}, 3)) == [2, 1, 3]
    with pytest.raises(ValueError, match="same nested structure"):
        tf.nest.map_structure(lambda a, b: a, [1, 2], [1])


def test_tensors_are_copied_pickled_and_compared():
    x = tf.constant([1.0, 2.0])
    assert copy.copy(x) is x
    assert np.array_equal(pickle.loads(pickle.dumps(x)), x)
    assert x.ref() == x.ref()
    assert x.ref() in {x.ref()}
    assert {tf.float32: 1}[tf.constant(1.0).dtype] == 1
    with pytest.raises(TypeError, match="does not support item assignment"):
        x[0] = 1.0
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_python_functions_are_operations():
    calls = []

    @tf.function
    def fn(x):
        return tf.py_function(lambda t: calls.append(1) or t * 2, [x], tf.float32) + 1.0

    assert [float(fn(tf.constant(n))) for n in (1.0, 2.0)] == [3.0, 5.0]
    assert len(calls) == 2


def test_recomputed_gradients_are_the_same():
    runs = []

    def block(x):
        runs.append(1)
        return tf.sin(x) * x

    x = tf.constant([1.0, 2.0])
    grads = []
    for fn in (block, tf.recompute_grad(block)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(fn(x))
        grads.append(tape.gradient(y, x).numpy())
    assert np.array_equal(*grads)
    assert len(runs) == 3


def test_retracing_is_told():
    fn = tf.function(lambda x, n: x * n)
    with pytest.warns(UserWarning, match="5 out of the last 5 calls"):
        for n in range(5):
            fn(tf.constant(1), n)
    relaxed = tf.function(lambda x: x + 1, reduce_retracing=True)
    for n in range(1, 6):
        relaxed(tf.ones([n]))
    assert relaxed.experimental_get_tracing_count() == 2


def test_functions_may_run_eagerly():
    tf.config.run_functions_eagerly(True)
    try:
        assert tf.function(lambda x: x.numpy())(tf.constant(2.0)) == 2.0
    finally:
        tf.config.run_functions_eagerly(False)


def test_tensors_of_disttrain_are_taken_as_they_are():
    x = dt.tensor([1.0, 2.0], requires_grad=True)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(x * tf.constant([3.0, 4.0]))
    assert np.array_equal(tape.gradient(y, x), [3.0, 4.0])
    assert isinstance(x + tf.constant(1.0), tf.Tensor)
    assert isinstance(tf.constant(1.0) - x, tf.Tensor)


def test_nothing_is_recorded_outside_of_tapes():
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        loss = v * v
    total = loss + 1.0
    assert not total._value.requires_grad
    assert float(tape.gradient(loss, v)) == 4.0


def test_threads_have_tapes_of_their_own():
    v = tf.Variable([1.0, 2.0])
    found = {}

    def work(n):
        for _ in range(20):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(v * float(n))
            found.setdefault(n, []).append(tape.gradient(loss, v).numpy().tolist())

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {n: [[float(n)] * 2] * 20 for n in (2, 3)}


class TestCases(tf.test.TestCase):
    def test_close(self):
        self.assertAllClose(tf.constant([1.0]), [1.0 + 1e-7])
        self.assertAllEqual({"a": 1}["a"], tf.constant(1))
        with self.assertRaises(AssertionError):
            self.assertAllClose([1.0], [1.1])


def test_devices_and_scopes():
    (device,) = tf.config.list_physical_devices()
    assert repr(device) == "PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')"
    assert tf.config.list_physical_devices("GPU") == []

    @tf.name_scope("whole")
    def fn():
        with tf.name_scope("inner") as name:
            return name

    assert fn() == "inner"


def test_strings_and_files(tmp_path):
    assert tf.strings.join(["a", tf.constant("b")], "/").numpy() == b"a/b"
    tf.io.write_file(str(tmp_path / "f"), b"bytes")
    assert tf.io.read_file(str(tmp_path / "f")).numpy() == b"bytes"


def test_specifications_are_of_one_kind():
    assert isinstance(tf.TensorSpec([2]), tf.TypeSpec)
    assert not isinstance(tf.constant(1), tf.TypeSpec)


def test_texts_are_gathered_and_set_in_loops():
    @tf.function
    def last(words):
        for i in tf.range(tf.size(words)):
            word = tf.gather(words, i)
        return word

    assert last(tf.constant(["a", "b"])).numpy() == b"b"
    assert tf.gather(["x", "y"], 1).numpy() == b"y"
