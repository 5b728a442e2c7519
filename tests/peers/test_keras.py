"""Keras computes the same on the stand-in as on PyTorch: figures of models like those of its
examples, from the same weights, over the same rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from support.keras_programs import FACE, said

MODELS = """
import json
import numpy as np
from keras import layers, ops

r = np.random.RandomState(0)
image, words, series = (8, 8, 1), (12,), (10, 2)


def block(x):
    a = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    return layers.LayerNormalization()(a + layers.Dense(8)(layers.Dense(8, "relu")(a)))


def convolutions():
    return keras.Sequential([
        keras.Input(image), layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(),
        layers.BatchNormalization(), layers.Flatten(), layers.Dense(3, activation="softmax"),
    ])


def denoising():
    x = given = keras.Input(image)
    for layer in (layers.Conv2D(4, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
                  layers.UpSampling2D(), layers.Conv2DTranspose(4, 3, padding="same"),
                  layers.Conv2D(1, 3, activation="sigmoid", padding="same")):
        x = layer(x)
    return keras.Model(given, x)


def text():
    given = keras.Input(words)
    x = block(layers.Embedding(30, 8)(given))
    return keras.Model(given, layers.Dense(3, "softmax")(layers.GlobalAveragePooling1D()(x)))


def recurrent():
    return keras.Sequential([
        keras.Input(series), layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
        layers.GRU(4), layers.Dense(3, activation="softmax"),
    ])


def siamese():
    one, other = keras.Input(image), keras.Input(image)
    tower = keras.Sequential([layers.Conv2D(2, 5, activation="tanh"), layers.AveragePooling2D(2),
                              layers.Flatten(), layers.Dense(4, activation="tanh")])
    apart = lambda pair: ops.sqrt(ops.sum(ops.square(pair[0] - pair[1]), 1, True) + 1e-6)
    x = layers.Lambda(apart, output_shape=(1,))([tower(one), tower(other)])
    return keras.Model([one, other], layers.Dense(1, activation="sigmoid")(x))


x, y = r.rand(48, *image).astype("float32"), r.randint(0, 3, 48)
DATA = {"convolutions": (x, y), "denoising": (x, x), "text": (r.randint(0, 30, (48, 12)), y),
        "recurrent": (r.rand(48, *series), y), "siamese": ([x, x[::-1]], y % 2)}
LOSSES = {"denoising": "binary_crossentropy", "siamese": "mse"}
found = {}
for name, (given, wanted) in DATA.items():
    model = globals()[name]()
    for v in model.weights:
        if len(v.shape) > 1:
            v.assign(r.uniform(-0.5, 0.5, v.shape).astype(v.dtype))
    model.compile(keras.optimizers.SGD(0.05), LOSSES.get(name, "sparse_categorical_crossentropy"))
    fitted = model.fit(given, wanted, 16, 3, shuffle=False, validation_split=0.25, verbose=0)
    found[name] = {**fitted.history, "last": float(model.predict(given, verbose=0).mean())}
print(json.dumps(found))
"""


@pytest.mark.peer
@pytest.mark.timeout(200)
def test_models_reach_the_same_figures(tmp_path):
    pytest.importorskip("torch")
    plain = said(tmp_path, "import keras\n" + MODELS, KERAS_BACKEND="torch")
    found, expected = (json.loads(lines[-1]) for lines in (said(tmp_path, FACE + MODELS), plain))
    for name, figures in expected.items():
        for figure, values in figures.items():
            close = np.allclose(found[name][figure], values, rtol=1e-4, atol=1e-5)
            assert close, (name, figure, values, found[name][figure])
