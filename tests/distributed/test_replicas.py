"""Copies of a model on ranks: their rows, sums, draws, beginning; clusters of ``TF_CONFIG``."""

from __future__ import annotations

import json

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed import replicas
from disttrain.errors import ConfigError, ShapeError
from support.ranks import free_port, run_ranks
from support.simulated import on_ranks


@pytest.mark.parametrize(("ranks", "count"), [(1, 3), (2, 5), (3, 7), (4, 2)])
def test_rows_are_taken_once(ranks, count):
    def rank_program():
        return replicas.rows(count)

    taken = on_ranks(rank_program, ranks)
    rows = [r for kept, share in taken if share for r in range(count)[kept]]
    assert rows == list(range(count))
    assert sum(share for _, share in taken) == pytest.approx(1)
    assert all(len(range(count)[kept]) >= 1 for kept, _ in taken)


def test_sums_by_shares_are_the_mean_over_all_rows():
    def rank_program():
        rank, _ = replicas.place()
        kept, share = replicas.own_rows(rank + 1)
        x = dt.full((2,), float(rank), requires_grad=True)
        broken = x.detach() / 0 if rank == 1 else x.detach()
        found, lacking, second = replicas.summed([x, None, x.detach().double()], share)
        return (
            kept,
            share,
            found.tolist(),
            second.dtype,
            found.requires_grad or lacking is not None,
            (replicas.summed([broken], 0.0 if rank == 1 else 1.0)[0].tolist()),
        )

    for rank, told in enumerate(on_ranks(rank_program, 2)):
        assert told[:2] == (slice(None), pytest.approx((rank + 1) / 3))
        assert told[2] == pytest.approx([2 / 3] * 2) and told[3] == dt.float64
        assert told[4] is False and told[5] == [0, 0]


def test_ranks_begin_alike():
    def rank_program():
        rank, _ = replicas.place()
        dt.manual_seed(rank)
        values = [dt.full((2,), float(rank)), dt.tensor(rank)]
        replicas.begin_alike(values)
        return values[0].tolist(), values[1].item(), dt.rand(2).tolist()

    first, other = on_ranks(rank_program, 2)
    assert first == other and first[:2] == ([0, 0], 0)


def test_a_process_alone_has_no_group():
    assert replicas.place() == (0, 1) and replicas.rows(4) == (slice(0, 4), 1.0)
    assert not dt.distributed.is_initialized()


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
        return total.tolist(), x.grad.tolist(), mean.dtype, joined.tolist(), replicas.place()

    found = on_ranks(body, 2)
    assert [f[0] for f in found] == [[2.0, 1.0]] * 2
    assert [f[1] for f in found] == [[2.0, 2.0]] * 2
    assert found[0][2:4] == (dt.int64, [[0, 0, 1, 1]])
    assert [f[4] for f in found] == [(0, 2), (1, 2)]


def test_values_of_several_sizes_one_after_the_other():
    def body():
        rank = dt.distributed.get_rank()
        x = dt.full((rank + 1, 2), float(rank), requires_grad=True)
        joined = replicas.after_another(x, 0)
        (joined * dt.arange(6.0)[:, None]).sum().backward()
        scalar = replicas.after_another(dt.full((3 - rank,), rank), -1).tolist()
        with pytest.raises(ShapeError, match="have to be alike"):
            replicas.after_another(x, 1)
        return joined.shape[0], x.grad[:, 0].tolist(), scalar

    found = on_ranks(body, 3)
    assert [f[0] for f in found] == [6] * 3
    assert [f[1] for f in found] == [[0.0], [3.0, 6.0], [9.0, 12.0, 15.0]]
    assert [f[2] for f in found] == [[0, 0, 0, 1, 1, 2]] * 3


def test_one_process_joins_nothing(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert replicas.place() == (0, 1) == replicas.place(join=False)


def test_workers_that_tf_config_tells_of_meet():
    port = free_port()

    def body(rank):
        cluster = {"chief": [f"localhost:{port}"], "worker": ["localhost:1"]}
        task = {"type": "worker" if rank else "chief", "index": 0}
        with pytest.MonkeyPatch.context() as env:
            for name in ("RANK", "WORLD_SIZE"):
                env.delenv(name, raising=False)
            env.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
            return replicas.place()

    assert run_ranks(2, body) == [(0, 2), (1, 2)]


@pytest.mark.parametrize("text", ["[", "3", '{"task": 1}', '{"task": {"index": "x"}}'])
def test_what_is_no_cluster(text):
    with pytest.raises(ConfigError, match="TF_CONFIG"):
        replicas.cluster_told(text)


@pytest.mark.parametrize(
    ("workers", "task"),
    [
        ("localhost:1", 0), (["localhost:1"], 5), (["localhost:1", "localhost:2"], -1),
        (["localhost", "localhost:1"], 0), (["localhost:1", "localhost:99999"], 0), ([1, 2], 0),
    ],
)  # fmt: skip
def test_what_is_no_place_in_a_cluster(workers, task, monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    told = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": task}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(told))
    with pytest.raises(ConfigError, match="TF_CONFIG"):
        replicas.place()
