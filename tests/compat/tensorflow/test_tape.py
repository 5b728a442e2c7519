"""Custom gradients that use variables and are differentiated again; targets that are variables.
The numbers are TensorFlow 2.21's."""

from __future__ import annotations

import pytest

from disttrain.compat import tensorflow as tf


@tf.custom_gradient
def log1pexp(x):
    e = tf.exp(x)

    def grad(upstream):
        return upstream * (1 - 1 / (1 + e))

    return tf.math.log(1 + e), grad


def test_custom_gradient_twice():
    x = tf.constant([0.0, 1.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = log1pexp(x)
        first = inner.gradient(y, x)
    assert first.numpy().tolist() == pytest.approx([0.5, 0.7310586])
    assert outer.gradient(first, x).numpy().tolist() == pytest.approx([0.25, 0.19661193])


@pytest.mark.parametrize("traced", [False, True])
def test_custom_gradient_of_variables(traced):
    v = tf.Variable(2.0)

    @tf.custom_gradient
    def times(x):
        def grad(upstream, variables=None):
            return upstream * v, [upstream * x * 7.0 for _ in variables]

        return v * x, grad

    x = tf.constant(5.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = (tf.function(times) if traced else times)(x)
    assert [g.numpy() for g in tape.gradient(y, [x, v])] == [2.0, 35.0]


def test_custom_gradient_that_does_not_fit():
    v, x = tf.Variable(2.0), tf.constant(1.0)
    uses = tf.custom_gradient(lambda a: (a * v, lambda g: g))
    with tf.GradientTape(), pytest.raises(TypeError, match="must accept a 'variables'"):
        uses(x)
    pair = tf.custom_gradient(lambda a, b: (a + b, lambda g: g))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = pair(x, x)
    with pytest.raises(ValueError, match="expected to return 2 gradients, but returned 1"):
        tape.gradient(y, x)


@pytest.mark.parametrize("read", [False, True])
def test_a_variable_as_target(read):
    v, w = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        y = v * w if read else w * w
        first = tape.gradient(v, [v, w])
    assert [g and g.numpy() for g in first] == [1.0, None]
    assert tape.gradient([v, y], v, [tf.constant(4.0), None]).numpy() == 4.0 + (3.0 if read else 0)
