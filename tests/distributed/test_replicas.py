"""Replicas: what they draw, sums, and clusters of ``TF_CONFIG``."""

from __future__ import annotations

import json

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed import replicas
from disttrain.errors import ConfigError
from support.ranks import free_port, run_ranks
from support.simulated import on_ranks


def test_all_draw_alike_inside_and_go_on_alone():
    def body(rank):
        dt.manual_seed(rank)
        dt.distributed.init_process_group(
            init_method=f"tcp://localhost:{port}", rank=rank, world_size=2
        )
        with replicas.same_draws():
            inside = dt.rand(2).tolist(), np.random.rand(), dt.rand(1).item()
        after = dt.rand(1).item()
        dt.manual_seed(rank)
        alone = dt.rand(1).item()
        return inside, after, alone

    port = free_port()
    (first, after0, _), (second, after1, alone1) = run_ranks(2, body)
    assert first == second and after0 != after1
    assert after1 == alone1  # as if nothing had been drawn


def test_values_together():
    def body():
        rank = dt.distributed.get_rank()
        x = dt.tensor([1.0, rank], requires_grad=True)
        total = replicas.together(x)
        total.sum().backward()
        mean = replicas.together(dt.tensor([rank]), mean=True)
        joined = replicas.after_another(dt.full((1, 2), rank), 1)
        return total.tolist(), x.grad.tolist(), mean.dtype, joined.tolist(), replicas.ranks()

    found = on_ranks(body, 2)
    assert [f[0] for f in found] == [[2.0, 1.0]] * 2
    assert [f[1] for f in found] == [[2.0, 2.0]] * 2
    assert found[0][2:4] == (dt.int64, [[0, 0, 1, 1]])
    assert [f[4] for f in found] == [(0, 2), (1, 2)]


def test_one_process_joins_nothing(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert replicas.ranks() == (0, 1) == replicas.ranks(join=False)


def test_workers_that_tf_config_tells_of_meet():
    port = free_port()

    def body(rank):
        cluster = {"chief": [f"localhost:{port}"], "worker": ["localhost:1"]}
        task = {"type": "worker" if rank else "chief", "index": 0}
        with pytest.MonkeyPatch.context() as env:
            for name in ("RANK", "WORLD_SIZE"):
                env.delenv(name, raising=False)
            env.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
            return replicas.ranks()

    assert run_ranks(2, body) == [(0, 2), (1, 2)]


@pytest.mark.parametrize("text", ["[", "3", '{"task": 1}', '{"task": {"index": "x"}}'])
def test_what_is_no_cluster(text):
    with pytest.raises(ConfigError, match="TF_CONFIG"):
        replicas.cluster_told(text)
