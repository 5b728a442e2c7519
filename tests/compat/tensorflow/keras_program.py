"""Keras' layers in training loops of TensorFlow's kind: run by ``test_keras``, as a program."""

from __future__ import annotations

import tempfile

import numpy as np
import tensorflow as tf


def data():
    x = tf.random.stateless_normal([32, 4], [1, 2])
    return x, tf.reduce_sum(x, 1, keepdims=True)


def model_of(keras):
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])


def losses(keras, decorate):
    model, (x, y) = model_of(keras), data()
    optimizer = keras.optimizers.Adam(0.01)

    @decorate
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    return [float(step(x, y)) for _ in range(6)], int(optimizer.iterations)


def test_a_training_loop_and_its_traced_form(keras):
    eager, steps = losses(keras, lambda fn: fn)
    traced, again = losses(keras, tf.function)
    assert steps == again == 6
    assert eager[-1] < eager[0]
    assert np.allclose(eager, traced, rtol=1e-5)


def test_layers_give_tensorflows_tensors(keras):
    model, (x, _) = model_of(keras), data()
    out = model(x)
    assert isinstance(out, tf.Tensor)
    assert out.dtype is tf.float32
    assert out.numpy().shape == (32, 1)
    assert isinstance(keras.losses.MeanSquaredError()(x, x), tf.Tensor)
    assert isinstance(keras.activations.relu(x), tf.Tensor)


def test_a_models_own_call_and_train_step(keras):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)
            self.head = keras.layers.Dense(1)

        def call(self, x):
            h = tf.nn.relu(self.dense(x))
            return self.head(h * tf.reduce_mean(h, axis=1, keepdims=True))

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            grads = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(grads, self.trainable_variables, strict=True))
            return {"own": loss}

    x, y = data()
    model = Model()
    model.compile("adam", "mse")
    history = model.fit(x, y, epochs=3, verbose=0).history["own"]
    assert history[-1] < history[0]


def test_a_penalty_on_gradients_of_inputs(keras):
    model, (x, _) = model_of(keras), data()
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            out = model(x)
        slope = inner.gradient(out, x)
        penalty = tf.reduce_mean((tf.norm(slope, axis=1) - 1.0) ** 2)
    grads = outer.gradient(penalty, model.trainable_variables)
    assert grads[0].shape == [4, 8]
    assert float(tf.linalg.global_norm(grads)) > 0


def test_an_optimizer_takes_variables(keras):
    v = tf.Variable([1.0, 2.0])
    keras.optimizers.SGD(0.5).apply_gradients([(tf.constant([1.0, 1.0]), v)])
    assert v.numpy().tolist() == [0.5, 1.5]


def test_metrics_in_traced_functions(keras):
    mean = keras.metrics.Mean()

    @tf.function
    def update(x):
        mean.update_state(x)
        return mean.result()

    assert [float(update(tf.constant(n))) for n in (1.0, 3.0, 5.0)] == [1.0, 2.0, 3.0]


def test_losses_of_layers(keras):
    class Penalized(keras.layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(shape[-1], 2), initializer="ones")

        def call(self, x):
            self.add_loss(tf.reduce_sum(self.w * 3.0))
            return tf.matmul(x, self.w)

    layer = Penalized()

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x)) + sum(layer.losses)
        return tape.gradient(loss, layer.trainable_variables)

    (found,) = gradient(tf.ones([1, 3]))
    assert found.numpy().tolist() == [[4.0, 4.0]] * 3


def test_models_that_are_built_after_restoring(keras):
    (x, y), first = data(), model_of(keras)
    wanted = first(x).numpy()
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(model=first).save(f"{folder}/c")
        for call in (lambda model: model(x), lambda model: tf.function(lambda v: model(v))(x),
                     lambda model: (model.fit(x, y, verbose=0), model(x))[1]):  # fmt: skip
            keras.utils.set_random_seed(2)
            late = keras.Sequential([keras.layers.Dense(8, activation="relu"),
                                     keras.layers.Dense(1)])  # fmt: skip
            late.compile(keras.optimizers.SGD(0.0), "mse")
            status = tf.train.Checkpoint(model=late).restore(path)
            assert np.array_equal(call(late).numpy(), wanted)
            status.assert_consumed()


def test_layers_of_a_programs_own(keras):
    calls = []

    class Scaled(keras.layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(shape[-1], 2), initializer="ones")
            self.scale = self.add_weight(shape=(), initializer="ones", trainable=False)

        def call(self, x):
            calls.append(1)
            return tf.matmul(x, self.w) * self.scale

    model = keras.Sequential([Scaled(), keras.layers.Dense(1, kernel_initializer="ones")])
    predict = tf.function(lambda x: model(x))
    assert predict(tf.ones([1, 3])).numpy().tolist() == [[6.0]]
    predict(tf.ones([1, 3]))
    count = len(calls)
    model.layers[0].scale.assign(0.5)
    assert predict(tf.ones([1, 3])).numpy().tolist() == [[3.0]]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(predict(tf.ones([1, 3])))
    assert tape.gradient(loss, model.layers[0].w).numpy().tolist() == [[0.5, 0.5]] * 3
    assert len(calls) <= count + 1  # (once more, for what is recorded)


def test_layers_with_state_and_chances(keras):
    x, y = data()
    found = []
    for decorate in (lambda fn: fn, tf.function):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization(),
                                  keras.layers.Dropout(0.5), keras.layers.Dense(1)])  # fmt: skip
        optimizer, mean = keras.optimizers.Adam(0.05), keras.metrics.Mean()
        model(x)

        @decorate
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)  # noqa: B023
            weights = model.trainable_variables  # noqa: B023
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # noqa: B023
            mean.update_state(loss)  # noqa: B023
            return loss, mean.result()  # noqa: B023

        found.append([float(v) for _ in range(4) for v in step(x, y)])
    assert found[0] == found[1]


def test_optimizers_of_variables(keras):
    def made():
        v, optimizer = tf.Variable(1.0), keras.optimizers.Adam(0.1)

        @tf.function
        def train(n):
            for _ in tf.range(n):
                with tf.GradientTape() as tape:
                    loss = v * v * v
                optimizer.apply_gradients([(tape.gradient(loss, v), v)])

        return v, optimizer, train

    (v, optimizer, train), (other, second, again) = made(), made()
    optimizer.build([v])
    train(tf.constant(2))
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(v=v, optimizer=optimizer).save(f"{folder}/c")
        train(tf.constant(2))
        status = tf.train.Checkpoint(v=other, optimizer=second).restore(path)
        again(tf.constant(2))  # which makes the optimizer's variables
        status.assert_consumed()
    assert abs(float(v) - 0.6101359) < 1e-6
    assert float(v) == float(other)
    second.apply([tf.constant(0.0)])
    assert float(v) != float(other)  # (by what was before: of the variable itself)


def test_layers_that_change_and_draw(keras):
    class Layer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.calls = tf.Variable(2.0)

        def call(self, x):
            self.calls.assign_add(1.0)
            return x * self.calls + tf.random.normal([3])

    layer = Layer()
    traced = tf.function(lambda x: (layer(x), keras.random.uniform([3])))
    found = [tf.concat(traced(tf.zeros([3])), 0).numpy().tolist() for _ in range(3)]
    assert float(layer.calls) == 5.0
    assert found[0] != found[1] != found[2]


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test(tf.keras)
        print(name)
