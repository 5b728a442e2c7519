"""GradientTape: watched, persistent, nested; a layer trained by hand."""

import numpy as np
import tensorflow as tf

x = tf.Variable(3.0)
with tf.GradientTape() as tape:
    y = x**2
print("dy/dx", tape.gradient(y, x).numpy())

w = tf.Variable(tf.random.normal((3, 2)), name="w")
b = tf.Variable(tf.zeros(2, dtype=tf.float32), name="b")
data = tf.constant([[1.0, 2.0, 3.0]])
with tf.GradientTape(persistent=True) as tape:
    out = data @ w + b
    loss = tf.reduce_mean(out**2)
dw, db = tape.gradient(loss, [w, b])
print("shapes", dw.shape, db.shape, [v.name for v in tape.watched_variables()])
also = tape.gradient(loss, {"w": w, "b": b})
print("persistent", np.allclose(also["w"], dw), np.allclose(db, also["b"]))
del tape

c = tf.constant(2.0)
with tf.GradientTape() as tape:
    tape.watch(c)
    y = c * c * c
print("watched", tape.gradient(y, c))

with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        y = x * x * x
    first = inner.gradient(y, x)
second = outer.gradient(first, x)
print("nested", first.numpy(), second.numpy())

with tf.GradientTape() as tape:
    with tape.stop_recording():
        hidden = x * x
    y = hidden + x
print("stopped", tape.gradient(y, x).numpy())

points = tf.linspace(-1.0, 1.0, 5)
with tf.GradientTape() as tape:
    tape.watch(points)
    values = tf.tanh(points)
print("jacobian", tape.jacobian(values, points).shape)
unused = tf.Variable(1.0)
with tf.GradientTape() as tape:
    y = x * 2.0
print("unconnected", tape.gradient(y, unused, unconnected_gradients=tf.UnconnectedGradients.ZERO))

true_w, true_b = 3.0, 2.0
xs = tf.linspace(-2.0, 2.0, 201)
ys = xs * true_w + true_b
model = {"w": tf.Variable(5.0), "b": tf.Variable(0.0)}
for epoch in range(100):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model["w"] * xs + model["b"] - ys))
    dw, db = tape.gradient(loss, [model["w"], model["b"]])
    model["w"].assign_sub(0.1 * dw)
    model["b"].assign_sub(0.1 * db)
print(f"fitted W={model['w'].numpy():.3f} b={model['b'].numpy():.3f}")
try:
    tf.constant(1) + tf.constant(1.0)
except tf.errors.InvalidArgumentError as error:
    print("strict", type(error).__name__)
