"""``fit`` on several ranks gives the weights and figures of one process that has all rows."""

from __future__ import annotations

import numpy as np
import pytest

from support.keras_programs import FACE, run, said

pytestmark = pytest.mark.timeout(200)  # (programs of which each loads Keras)

FIT = """
import os
import sys

import numpy as np
from keras import layers

rank, several = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1") != "1"
keras.utils.set_random_seed(int(rank) if "--own-seeds" in sys.argv else 0)
if several:
    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    print("devices", keras.distribution.list_devices())
r = np.random.RandomState(0)
x, y = r.rand(41, 6).astype("float32"), r.randint(0, 3, 41)


class Seen(keras.metrics.Metric):
    # Told by the memory of the variable itself, as TruePositives tells its count.

    def __init__(self):
        super().__init__()
        self.rows = self.add_weight(initializer="zeros")

    def update_state(self, true, predicted, sample_weight=None):
        self.rows.assign_add(len(true))

    def result(self):
        return keras.ops.convert_to_tensor(self.rows)


model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(3, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy", Seen()])
writers = [keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
           keras.callbacks.CSVLogger(f"{several}.csv"), keras.callbacks.BackupAndRestore("kept")]
fitted = model.fit(x, y, 8, 2, validation_data=(x[:9], y[:9]), callbacks=writers, verbose=2)
assert not several or fitted.history.pop("seen") == [41, 41]
figures = [fitted.history[name] for name in sorted(fitted.history) if name != "seen"]
figures.append(model.train_on_batch(x, y))
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(reduction="sum"))
figures[-1].extend(np.ravel(model.train_on_batch(x, y)))
np.savez(f"{several}{rank}.npz", np.ravel(figures[:-1]), figures[-1], *model.get_weights(),
         model.evaluate(x, y, verbose=0), model.predict(x, verbose=0))
"""


def _ranks(number: int) -> tuple[str, ...]:
    return "-m", "disttrain_launcher", "--nproc-per-node", str(number)


def _numbers(folder, name: str) -> list[np.ndarray]:
    with np.load(folder / f"{name}.npz") as found:
        return [found[k] for k in found.files]


def test_fit_over_ranks_equals_one_process(tmp_path):
    said(tmp_path, FACE + FIT)
    lines = said(tmp_path, FACE + FIT, *_ranks(2))
    assert sum("devices ['cpu:0', 'cpu:1']" in line for line in lines) == 2
    assert sum("Epoch 2/2" in line for line in lines) == 1  # rank 0's
    whole = _numbers(tmp_path, "False0")
    for rank in (0, 1):
        for mine, all_rows in zip(_numbers(tmp_path, f"True{rank}"), whole, strict=True):
            np.testing.assert_allclose(mine, all_rows, rtol=2e-5, atol=2e-6)
    assert (tmp_path / "best.keras").exists() and not (tmp_path / "kept").exists()
    logged = [(tmp_path / f"{several}.csv").read_text() for several in (True, False)]
    assert [text.count("\n") for text in logged] == [3, 3]


ONE_BATCH = """
keras.distribution.set_distribution(keras.distribution.DataParallel())
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
print("told", model.train_on_batch(keras.ops.ones((4, 3)), keras.ops.ones((4, 1))))
"""


def test_so_they_do_where_batches_are_given_one_by_one(tmp_path):
    lines = said(tmp_path, FACE + ONE_BATCH, *_ranks(2))
    told = {line.partition("told")[2] for line in lines if "told" in line}
    assert len(told) == 1 and sum("told" in line for line in lines) == 2


def test_ranks_begin_alike_whatever_they_drew(tmp_path):
    program = FACE + FIT.replace('"--own-seeds" in sys.argv', "True")
    said(tmp_path, program, *_ranks(2))
    for one, other in zip(_numbers(tmp_path, "True0"), _numbers(tmp_path, "True1"), strict=True):
        np.testing.assert_array_equal(one, other)


OTHERS = """
import numpy as np
from keras import layers

keras.utils.set_random_seed(0)
shared = keras.distribution.DataParallel(auto_shard_dataset=False)
rank = int(os.environ["RANK"])
with shared.scope():
    r = np.random.RandomState(0)
    x, y = r.rand(24, 3).astype("float32"), r.rand(24, 1)
    kept = slice(0, 16) if rank == 0 else slice(16, 24)  # of different numbers of rows
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=8.0)
    model.compile(optimizer, "mse")
    model.fit(x[kept], y[kept], batch_size=16, epochs=1, shuffle=False, verbose=0)
assert keras.distribution.distribution() is None
alone = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
alone.compile(keras.optimizers.SGD(0.1), "mse")
keras.utils.set_random_seed(0)
again = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
again.compile(keras.optimizers.SGD(0.1), "mse")
again.fit(x, y, batch_size=24, epochs=1, shuffle=False, verbose=0)
np.testing.assert_allclose(model.get_weights()[0], again.get_weights()[0], rtol=1e-5)

mesh = keras.distribution.DeviceMesh((2,), ["model"])
layouts = keras.distribution.LayoutMap(mesh)
layouts["dense.*kernel"] = (None, "model")
with keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="model").scope():
    try:
        alone.fit(x, y, verbose=0)
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_rows_of_their_own_and_what_is_not_there(tmp_path):
    lines = said(tmp_path, "import os\n" + FACE + OTHERS, *_ranks(2))
    told = [line for line in lines if "ConfigError" in line and "DataParallel alone" in line]
    assert len(told) == 2, lines


@pytest.mark.parametrize("given", ["job_addresses='127.0.0.1:1'"])
def test_half_of_a_meeting_is_refused(tmp_path, given):
    done = run(tmp_path, FACE + f"keras.distribution.initialize({given})\n")
    assert done.returncode == 1 and "needed num_processes" in done.stderr
