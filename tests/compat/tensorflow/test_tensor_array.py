"""Arrays of tensors: eagerly, in loops of traced functions, and gradients through them."""

from __future__ import annotations

import pytest

from disttrain.compat import tensorflow as tf


def steps(x):
    states, state = tf.TensorArray(tf.float32, size=tf.shape(x)[0]), tf.zeros([2])
    for i in tf.range(tf.shape(x)[0]):
        state = state * 2.0 + x[i]
        states = states.write(i, state)
    return states.stack()


def even(n):
    found = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
    for i in tf.range(n):
        if i % 2 == 0:
            found = found.write(found.size(), i)
    return found.stack()


@pytest.mark.parametrize("how", [lambda f: f, tf.function])
def test_loops(how):
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = how(steps)(x)
    assert y.numpy().tolist() == [[1.0, 2.0], [5.0, 8.0], [15.0, 22.0]]
    assert tape.gradient(y, x).numpy().tolist() == [[7.0, 7.0], [3.0, 3.0], [1.0, 1.0]]
    assert how(even)(tf.constant(7)).numpy().tolist() == [0, 2, 4, 6]


def test_methods():
    held = tf.TensorArray(tf.float32, 2).unstack([[1.0, 2.0], [3.0, 4.0]])
    assert held.read(1).numpy().tolist() == [3.0, 4.0] and held.size().numpy() == 2
    assert held.concat().numpy().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert held.gather([1, 1]).numpy().tolist() == [[3.0, 4.0]] * 2
    held.write(0, [9.0, 9.0])  # eagerly it is one object
    assert held.read(0).numpy().tolist() == [9.0, 9.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="access index 2"):
        held.write(2, [0.0, 0.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Shape"):
        held.write(0, 1.0)


def test_texts_are_gathered():
    words = tf.constant(["c", "a", "t"])
    assert tf.gather(words, [2, 0]).numpy().tolist() == [b"t", b"c"]
