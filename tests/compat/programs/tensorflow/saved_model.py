"""A module that is saved as a SavedModel, and loaded without its class."""

import os
import tempfile

import tensorflow as tf


class Dense(tf.Module):
    def __init__(self, n_in, n_out, name=None):
        super().__init__(name=name)
        self.w = tf.Variable(tf.reshape(tf.range(n_in * n_out, dtype=tf.float32), [n_in, n_out]) / 10.0)
        self.b = tf.Variable(tf.zeros([n_out]), name="b")

    def __call__(self, x):
        return tf.nn.relu(x @ self.w + self.b)


class Network(tf.Module):
    def __init__(self):
        super().__init__()
        self.layers = [Dense(3, 4), Dense(4, 2)]
        self.calls = tf.Variable(0, trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def __call__(self, x):
        self.calls.assign_add(1)
        for layer in self.layers:
            x = layer(x)
        return x

    @tf.function
    def power(self, x, times=2):
        return x**times

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def scores(self, images):
        return {"scores": tf.nn.softmax(self(images)), "best": tf.argmax(self(images), axis=-1)}

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32)])
    def gate(self, x):
        if tf.reduce_sum(x) > 0:
            y = x * self.layers[0].w[0, 1]
        else:
            y = -x
        return y

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def halvings(self, x):
        count = 0
        while x > 1.0:
            x = x / 2.0
            count += 1
        return count, x


net = Network()
x = tf.constant([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]])
expected = net(x)
net.power(tf.constant(3.0))
net.power(tf.constant([1.0, 2.0]), times=3)
path = os.path.join(tempfile.mkdtemp(), "network")
tf.saved_model.save(net, path, signatures={"serving_default": net.scores})
print("saved", tf.saved_model.contains_saved_model(path))

loaded = tf.saved_model.load(path)
print("is a Network:", isinstance(loaded, Network))
print("same", bool(tf.reduce_all(loaded(x) == expected)))
print("any batch", loaded(tf.ones([5, 3])).shape)
print("calls", loaded.calls.numpy(), net.calls.numpy())
print("power", loaded.power(tf.constant(5.0)).numpy(), loaded.power(tf.constant([1.0, 3.0]), times=3).numpy())
try:
    loaded.power(tf.constant([1.0, 2.0, 3.0]))
except ValueError as error:
    print("refused", str(error).splitlines()[0].split(".")[0])

print("gate", loaded.gate(tf.constant([1.0, 2.0, 3.0])).numpy(), loaded.gate(tf.constant([-1.0, -2.0, 0.0])).numpy())
print("halvings", [part.numpy() for part in loaded.halvings(tf.constant(100.0))])

infer = loaded.signatures["serving_default"]
found = infer(images=x)
print(sorted(found), found["best"].numpy())

with tf.GradientTape() as tape:
    loss = tf.reduce_sum(loaded(x))
layer = loaded.layers[0]
gradient = tape.gradient(loss, layer.w)
print("gradient", gradient.shape)
layer.b.assign_add(tf.ones([4]))
print("trained", bool(tf.reduce_any(loaded(x) != expected)))
again = os.path.join(tempfile.mkdtemp(), "again")
tf.saved_model.save(loaded, again)
print("again", bool(tf.reduce_all(tf.saved_model.load(again)(x) == loaded(x))))
