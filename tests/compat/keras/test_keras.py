"""Keras itself on the stand-in for torch: models, layers, files, as people write them."""

from __future__ import annotations

import pytest

from support.keras_programs import FACE, run, said

pytestmark = pytest.mark.timeout(200)  # (programs of which each loads Keras)

MODELS = """
import sys
import numpy as np
import torch
from keras import layers, ops

assert torch.__version__.endswith("disttrain") and keras.backend.backend() == "torch"
keras.utils.set_random_seed(1)
r = np.random.RandomState(0)


def same(model, again, *given):
    np.testing.assert_allclose(
        model.predict(*given, verbose=0), again.predict(*given, verbose=0), rtol=1e-6
    )


# A sequence of layers, with callbacks, metrics and files.
x, y = r.rand(64, 8, 8, 1).astype("float32"), r.randint(0, 3, 64)
model = keras.Sequential([
    keras.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.BatchNormalization(),
    layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.2),
    layers.Dense(3, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
stops = keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True)
rate = keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.5)
history = model.fit(x, y, batch_size=16, epochs=3, validation_split=0.25, callbacks=[stops, rate])
assert set(history.history) >= {"accuracy", "loss", "val_accuracy", "val_loss", "learning_rate"}
assert len(model.evaluate(x, y, verbose=0)) == 2
for name in ("model.keras", "model.h5"):
    model.save(name)
    same(model, keras.models.load_model(name), x)
model.save_weights("model.weights.h5")
before = model.predict(x, verbose=0)
model.set_weights([w * 0 for w in model.get_weights()])
model.load_weights("model.weights.h5")
np.testing.assert_array_equal(before, model.predict(x, verbose=0))

# A graph of layers: embeddings, attention, recurrent ones.
words = r.randint(0, 20, (32, 6))
given = keras.Input((6,), dtype="int32")
z = layers.Embedding(20, 8, mask_zero=True)(given)
z = layers.MultiHeadAttention(2, 4)(z, z) + z
z = layers.LayerNormalization()(z)
z = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(z)
z = layers.GRU(4)(z)
model = keras.Model(given, layers.Dense(1)(z))
model.compile("rmsprop", "mse")
losses = model.fit(words, words.mean(1), epochs=4, verbose=0).history["loss"]
assert losses[-1] < losses[0]
model.save("words.keras")
same(model, keras.models.load_model("words.keras"), words)


# A class with a step of its own, which gives variables to functions of torch.
class Line(keras.Model):
    def __init__(self):
        super().__init__()
        self.w = self.add_weight(shape=(2, 1), initializer="zeros")
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, x):
        return torch.matmul(x, self.w) * 1.0

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = torch.mean((self(x) - y) ** 2)
        loss.backward()
        with torch.no_grad():
            self.optimizer.apply([v.value.grad for v in self.trainable_variables],
                                 self.trainable_variables)
        self.seen.update_state(loss)
        return {"seen": self.seen.result()}


points = r.rand(64, 2).astype("float32")
line = Line()
line.compile(keras.optimizers.SGD(0.5))
line.fit(points, points @ np.float32([[1], [-2]]), epochs=60, verbose=0)
np.testing.assert_allclose(line.get_weights()[0].ravel(), [1, -2], atol=0.02)

# Loaders, half types, layers of torch beside Keras' own.
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.tensor(points), torch.ones(64, 1)), batch_size=16
)
for policy in ("mixed_bfloat16", "mixed_float16"):
    keras.mixed_precision.set_global_policy(policy)
    half = keras.Sequential([keras.Input((2,)), layers.Dense(4), layers.Dense(1, dtype="float32")])
    half.compile("adam", "mse")
    assert np.isfinite(half.fit(loader, epochs=2, verbose=0).history["loss"][-1])
keras.mixed_precision.set_global_policy("float32")
mixed = keras.Sequential([
    keras.Input((2,)), layers.TorchModuleWrapper(torch.nn.Linear(2, 4)), layers.Dense(1)
])
mixed.compile("sgd", "mse")
mixed.fit(loader, verbose=0)
assert len(mixed.trainable_weights) == 4
print("all ran")
"""


def test_models_train_and_come_back_from_files(tmp_path):
    assert said(tmp_path, FACE + MODELS)[-1] == "all ran"


def test_a_program_that_names_keras_alone(tmp_path):
    program = "import keras, sys\nprint(keras.backend.backend(), sys.modules['torch'].__name__)\n"
    lines = said(tmp_path, program, "-m", "disttrain.compat.keras")
    assert lines[-1] == "torch torch"


@pytest.mark.parametrize(
    ("before", "env", "told"),
    [
        ("", {"KERAS_BACKEND": "jax"}, "backend is 'jax'"),
        ("import sys; sys.modules['keras'] = None\n", {}, "Keras is not installed; pip install"),
        ("import importlib.metadata as m; m.version = lambda name: '2.15.0'\n", {},
         "Keras 2.15.0; needed 3.15 to below 4"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(tmp_path, before, env, told):
    done = run(tmp_path, before + FACE, **env)
    assert done.returncode == 1 and told in done.stderr, done.stderr
