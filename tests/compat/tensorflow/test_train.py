"""tf.train: checkpoints that are whole, and what they restore."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disttrain.compat.tensorflow import operators as _operators  # (tensors' arithmetic)
from disttrain.compat.tensorflow.data import DatasetV2
from disttrain.compat.tensorflow.errors import NAMES
from disttrain.compat.tensorflow.files import TRAIN as NAMED
from disttrain.compat.tensorflow.function import function
from disttrain.compat.tensorflow.toplevel import Module
from disttrain.compat.tensorflow.variable import Variable

train = SimpleNamespace(**NAMED)


def made(value=1.0):
    it = iter(DatasetV2.range(20).shuffle(7, seed=2).batch(2))
    parts = {"w": Variable([value, 2.0]), "step": Variable(3), "nested": {"b": [Variable("text")]}}
    return train.Checkpoint(it=it, **parts)


def test_all_is_restored(tmp_path):
    first = made()
    next(first.it)
    path = first.save(tmp_path / "ckpt")
    assert path == str(tmp_path / "ckpt-1") == train.latest_checkpoint(tmp_path)
    rest = [x.numpy().tolist() for x in first.it]
    other = made(7.0)
    other.restore(path).assert_consumed()
    assert other.w.numpy().tolist() == [1.0, 2.0] and int(other.save_counter) == 1
    assert [x.numpy().tolist() for x in other.it] == rest
    assert ("w/.ATTRIBUTES/VARIABLE_VALUE", [2]) in train.list_variables(path)
    assert train.load_variable(path, "step") == 3
    assert (tmp_path / "checkpoint").read_text().splitlines()[
        0
    ] == 'model_checkpoint_path: "ckpt-1"'
    assert _operators is not None


def test_matches_are_told(tmp_path):
    path = made().write(tmp_path / "c")
    part = train.Checkpoint(w=Variable([0.0, 0.0]))
    status = part.read(path)
    status.assert_existing_objects_matched()
    status.expect_partial()
    with pytest.raises(AssertionError, match="Unresolved object"):
        status.assert_consumed()
    with pytest.raises(AssertionError, match="1 Python objects"):
        train.Checkpoint(q=Variable(1.0)).read(path).assert_existing_objects_matched()
    with pytest.raises(ValueError, match="incompatible tensor with shape"):
        train.Checkpoint(w=Variable([1.0])).read(path)
    with pytest.raises(ValueError, match="trackable"):
        train.Checkpoint(x=5)


def test_files_that_are_not_there_or_damaged(tmp_path):
    with pytest.raises(NAMES["NotFoundError"], match="Failed to find"):
        made().restore(str(tmp_path / "none"))
    assert made().restore(None).assert_consumed()
    assert train.latest_checkpoint(tmp_path) is None
    path = made().write(tmp_path / "c")
    (tmp_path / "c.index").write_bytes((tmp_path / "c.index").read_bytes()[:50])
    with pytest.raises(NAMES["DataLossError"]):
        made().restore(path)


def test_a_manager_keeps_the_last(tmp_path):
    checkpoint = made()
    manager = train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    assert manager.restore_or_initialize() is None
    for _ in range(3):
        manager.save()
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["checkpoint", "ckpt-2.index", "ckpt-3.index"]
    again = train.CheckpointManager(made(5.0), tmp_path, max_to_keep=2)
    assert again.restore_or_initialize() == manager.latest_checkpoint == str(tmp_path / "ckpt-3")
    assert again.checkpoint.w.numpy()[0] == 1.0
    with pytest.raises(ValueError, match="max_to_keep"):
        train.CheckpointManager(checkpoint, tmp_path, max_to_keep=0)


def test_an_interval(tmp_path):
    checkpoint = made()
    manager = train.CheckpointManager(
        checkpoint, tmp_path, None, step_counter=checkpoint.step, checkpoint_interval=2
    )
    assert manager.save() and manager.save() is None
    checkpoint.step.assign_add(2)
    assert manager.save()


def test_variables_that_are_made_later_are_restored(tmp_path):
    class Dense(Module):
        def __init__(self):
            super().__init__("dense")
            self.w = None

        def __call__(self, x):
            if self.w is None:
                self.w = Variable([0.0, 0.0])
            return self.w * x

    first = Dense()
    first(1.0)
    first.w.assign([1.0, 2.0])
    path = train.Checkpoint(net=first).save(tmp_path / "c")
    late = Dense()
    status = train.Checkpoint(net=late).restore(path)
    assert late(2.0).numpy().tolist() == [2.0, 4.0]
    status.assert_consumed()
    late = Dense()
    train.Checkpoint(net=late).restore(path)
    assert function(late.__call__)(3.0).numpy().tolist() == [3.0, 6.0]
