"""Devices that Keras is told of, in one process."""

from __future__ import annotations

import pytest

from support.keras_programs import FACE, said

pytestmark = pytest.mark.timeout(200)  # (programs of which each loads Keras)

ALONE = """
import numpy as np
shown = keras.distribution
print(shown.list_devices(), shown.list_devices("cpu"), shown.list_devices("gpu"))
print(shown.get_device_count(), shown.DataParallel().num_model_replicas)
shown.set_distribution(shown.DataParallel())
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((4, 2)), np.ones(4), verbose=0)
layout = shown.TensorLayout([None, None], shown.DeviceMesh((1,), ["batch"]))
print(shown.distribute_tensor(keras.ops.ones((2, 2)), layout).shape)
"""


def test_one_process_is_one_device(tmp_path):
    lines = said(tmp_path, FACE + ALONE)
    assert lines[-3:] == ["['cpu:0'] ['cpu:0'] []", "1 1", "torch.Size([2, 2])"]
