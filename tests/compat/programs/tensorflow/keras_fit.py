"""Keras' Sequential: compile, fit, evaluate, predict, save; a custom loop; mixed precision."""

import os
import tempfile

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
centers = rng.standard_normal((4, 20)).astype("float32") * 2
labels = rng.integers(0, 4, 800)
features = (centers[labels] + rng.standard_normal((800, 20))).astype("float32")
train, test = (features[:600], labels[:600]), (features[600:], labels[600:])

model = tf.keras.Sequential(
    [
        tf.keras.Input((20,)),
        tf.keras.layers.Dense(32, activation="relu"),
        tf.keras.layers.Dropout(0.1),
        tf.keras.layers.Dense(4, activation="softmax"),
    ]
)
model.compile(
    optimizer=tf.keras.optimizers.Adam(1e-2),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
model.summary()
history = model.fit(
    *train, epochs=5, batch_size=32, validation_split=0.1, verbose=0,
    callbacks=[tf.keras.callbacks.EarlyStopping(patience=3)],
)  # fmt: skip
loss, accuracy = model.evaluate(*test, verbose=0)
print("accuracy", accuracy > 0.9, sorted(history.history))
before = model.predict(test[0][:5], verbose=0)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.keras")
    model.save(path)
    again = tf.keras.models.load_model(path)
print("loaded", np.allclose(before, again.predict(test[0][:5], verbose=0), atol=1e-6))

optimizer = tf.keras.optimizers.SGD(0.1)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
net = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(4)])
dataset = tf.data.Dataset.from_tensor_slices(train).shuffle(600, seed=0).batch(50)
for epoch in range(5):
    for x, y in dataset:
        with tf.GradientTape() as tape:
            logits = net(x, training=True)
            value = loss_fn(y, logits)
        grads = tape.gradient(value, net.trainable_variables)
        optimizer.apply_gradients(zip(grads, net.trainable_variables))
print("custom loop", float(value) < 0.5)

tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
half = tf.keras.layers.Dense(4)
out = half(train[0][:2])
print("mixed", half.compute_dtype, half.variable_dtype, tf.keras.mixed_precision.global_policy().name)
