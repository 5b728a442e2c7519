"""Strategies: one replica for each rank, in force for a block."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.data.pipeline import Pipeline
from disttrain.data.pipeline.views import View
from disttrain.distributed import strategies


def test_what_is_in_force():
    alone = strategies.Strategy()
    assert alone.num_replicas_in_sync == 1
    with alone.scope() as found:
        assert found is alone is strategies.CURRENT.get()
        assert not strategies.REPLICA.get()
        assert alone.run(lambda x: (x, strategies.REPLICA.get()), (3,)) == (3, True)
    assert strategies.CURRENT.get() is None


def test_inputs():
    context = strategies.InputContext(2, 1, 2)
    assert context.get_per_replica_batch_size(8) == 4
    with pytest.raises(ValueError, match="not divisible"):
        context.get_per_replica_batch_size(3)
    part = strategies.Strategy().part(Pipeline.range(4).batch(2))
    assert len(list(part)) == 2
    view = View(Pipeline.range(4).batch(2), "Batch", {"a": 1})
    for made in (strategies.Strategy().spread(view), strategies.Strategy().made_by(lambda c: view)):
        assert len(list(made)) == 2 and made.title == "Distributed" and made.options() == {"a": 1}


def test_values_of_one_replica():
    x = dt.tensor([[1.0, 2.0], [3.0, 6.0]])
    assert strategies.reduced(x).tolist() == x.tolist()
    assert strategies.reduced(x, True, 0).tolist() == [2.0, 4.0]
    assert strategies.gathered(x, 0).tolist() == x.tolist()


def test_clusters(monkeypatch):
    told = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'
    monkeypatch.setenv("TF_CONFIG", told)
    found = strategies.Resolver()
    assert (found.task_type, found.task_id) == ("worker", 1)
    assert found.cluster_spec().num_tasks("worker") == 2


def test_values_of_replicas_under_a_strategy():
    alone, x = strategies.Strategy(), dt.tensor([1.0, 3.0])
    assert alone.reduce("sum", {"x": x})["x"] is x
    assert alone.reduce("MEAN", x, 0).item() == 2.0 and alone.gather(x, 0) is x
    with pytest.raises(ValueError, match="MEDIAN"):
        alone.reduce("median", x)
    assert alone.local_results(x) == (x,)
    with alone.scope():
        assert strategies.has_strategy() and strategies.in_cross_replica_context()
        context = strategies.ReplicaContext(alone)
        seen = alone.run(lambda: context.merge_call(
            lambda s, n: (s, n, strategies.in_cross_replica_context()), (2,)))  # fmt: skip
        assert seen == (alone, 2, True) and context.all_reduce("sum", x) is x
        assert (context.num_replicas_in_sync, context.replica_id_in_sync_group) == (1, 0)
    assert alone.values_from_function(lambda c: tuple(c)) == (0, 1)
    assert strategies.Strategy.replica().strategy.num_replicas_in_sync == 1
    with alone.scope():
        assert strategies.Strategy.current() is alone and strategies.Strategy.replica() is None
    assert strategies.average_loss(x).item() == 2.0
    assert strategies.average_loss(x, dt.tensor([1.0, 0.0]), 4).item() == 0.25
    assert strategies.scaled_penalty(x).tolist() == [1.0, 3.0]
