"""tf.distribute: several ranks compute what one does on the whole batch."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.tensorflow as tf
from disttrain.compat.tensorflow.data import AutoShardPolicy, DatasetV2
from disttrain.compat.tensorflow.random import NAMES as RANDOM
from disttrain.compat.tensorflow.tensor import convert
from support.simulated import on_ranks

distribute, train = tf.distribute, tf.train
D = DatasetV2
pytestmark = pytest.mark.simulated


def trained(folder, traced=False):
    """Weights after two epochs, this rank's rows of each step, and what follows a checkpoint."""
    strategy = distribute.MirroredStrategy()
    with strategy.scope():
        free = tf.Variable(RANDOM["normal"]([2]))
        w = tf.Variable(np.zeros((3, 1), np.float32))
    x = np.arange(60, dtype=np.float32).reshape(20, 3) / 30
    whole = D.from_tensor_slices((x, x.sum(1, keepdims=True))).shuffle(20, seed=1).batch(8)
    part = strategy.experimental_distribute_dataset(whole)

    def step(a, b):
        context = distribute.get_replica_context()
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.square(a @ w - b), global_batch_size=8)
        w.assign_sub(0.1 * context.all_reduce("sum", tape.gradient(loss, w)))
        return loss

    def whole_step(a, b):
        return strategy.reduce("SUM", strategy.run(step, args=(a, b)), axis=None)

    run, rows = (tf.function(whole_step) if traced else whole_step), []
    checkpoint = train.Checkpoint(w=w, it=iter(part))
    for epoch in range(2):
        for a, b in checkpoint.it:
            rows.append(int(a.shape[0]))
            loss = float(run(a, b))
            if epoch and len(rows) == 4:
                checkpoint.write(folder / "c")
        checkpoint.it = iter(part)
    other = train.Checkpoint(w=tf.Variable(w), it=iter(part))
    other.read(folder / "c").assert_consumed()
    left = [int(a.shape[0]) for a, _ in other.it]
    return w.numpy().ravel().tolist(), loss, rows, left, free.numpy().tolist()


@pytest.mark.parametrize(("size", "traced"), [(1, False), (2, False), (2, True), (3, False)])
def test_ranks_train_as_one(tmp_path, size, traced):
    (alone,) = on_ranks(lambda: trained(tmp_path), 1)
    found = on_ranks(lambda: trained(tmp_path, traced), size)
    for weights, loss, rows, _, free in found:
        np.testing.assert_allclose(weights, alone[0], rtol=1e-5)
        assert loss == pytest.approx(alone[1], rel=1e-4) and free == found[0][4]
        assert len(rows) == 6
    assert [sum(r) for r in zip(*[f[2] for f in found], strict=True)] == alone[2]
    assert [sum(r) for r in zip(*[f[3] for f in found], strict=True)] == alone[3] == [8, 4]


def test_values_of_replicas():
    def body():
        strategy = distribute.MirroredStrategy()
        rank = strategy.rank
        mine = convert(np.arange(rank + 1, dtype=np.float32))
        return (
            strategy.num_replicas_in_sync,
            float(strategy.reduce("MEAN", convert(float(rank)), axis=None)),
            float(strategy.reduce("MEAN", mine, axis=0)),
            strategy.gather(convert([rank]), axis=0).numpy().tolist(),
            strategy.run(lambda: int(distribute.get_replica_context().replica_id_in_sync_group)),
            strategy.experimental_distribute_values_from_function(
                lambda c: c.replica_id_in_sync_group
            ),
        )

    assert on_ranks(body, 2) == [
        (2, 0.5, pytest.approx(1 / 3), [0, 1], 0, 0), (2, 0.5, pytest.approx(1 / 3), [0, 1], 1, 1)
    ]  # fmt: skip


def test_where_one_is():
    strategy = distribute.MirroredStrategy()
    assert strategy.num_replicas_in_sync == 1 and not distribute.has_strategy()
    assert distribute.get_replica_context() is not None
    assert distribute.get_strategy() is distribute.get_strategy()
    with strategy.scope():
        assert distribute.in_cross_replica_context() and distribute.get_strategy() is strategy
        assert distribute.get_replica_context() is None
        inside = strategy.run(lambda: distribute.in_cross_replica_context())
    assert inside is False
    with pytest.raises(ValueError, match="MEDIAN"):
        strategy.reduce("median", 1.0, axis=None)
    context = distribute.InputContext(2, 1, 2)
    assert context.get_per_replica_batch_size(8) == 4
    assert str(context) == "tf.distribute.InputContext(input pipeline id 1, total: 2)"
    with pytest.raises(ValueError, match="not divisible"):
        context.get_per_replica_batch_size(7)


def test_inputs():
    def body():
        strategy = distribute.MirroredStrategy()
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
        whole = strategy.experimental_distribute_dataset(D.range(6).batch(4).with_options(options))
        made = strategy.distribute_datasets_from_function(
            lambda c: D.range(8).shard(c.num_input_pipelines, c.input_pipeline_id).batch(2)
        )
        return [[x.numpy().tolist() for x in ds] for ds in (whole, made)]

    first, second = on_ranks(body, 2)
    assert first == [[[0, 1], [2, 3], [4, 5]], [[0, 2], [4, 6]]]
    assert second == [[[0, 1], [2, 3], [4, 5]], [[1, 3], [5, 7]]]


def test_the_cluster_of_tf_config(monkeypatch):
    told = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'
    monkeypatch.setenv("TF_CONFIG", told)
    resolver = distribute.cluster_resolver.TFConfigClusterResolver()
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
    assert resolver.cluster_spec().as_dict() == {"worker": ["a:1", "b:2"]}
    monkeypatch.setenv("TF_CONFIG", "[nonsense")
    with pytest.raises(ValueError, match="no description of a cluster"):
        distribute.cluster_resolver.TFConfigClusterResolver()
