"""What a wrapper tells of its costs: sizes, times, and which rank is waited for."""

from __future__ import annotations

import numpy as np

from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.distributed.ddp.stats import Stats
from launcher import launch

DDP = dist.DistributedDataParallel


def body() -> tuple[dict, str]:
    dist.init_process_group()
    m = DDP(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), bucket_cap_mb=1e-4)
    for _ in range(6):
        m.zero_grad()
        m(core.wrap(np.ones((2, 3), np.float32))).sum().backward()
    out = m._get_ddp_logging_data(), m.report()
    dist.destroy_process_group()
    return out


def test_sizes_times_and_the_straggler() -> None:
    for rank, (data, text) in enumerate(launch(body, 2)):
        assert (data["world_size"], data["rank"], data["iteration"]) == (2, rank, 6)
        assert data["num_parameter_tensors"] == 4 and data["total_parameter_size_bytes"] == 4 * 26
        assert data["has_rebuilt_buckets"] == 1 and data["comm_hook"] == ""
        assert data["bytes_per_step"] > data["total_parameter_size_bytes"]
        assert data["avg_forward_compute_time"] > 0
        assert data["backward_compute_comm_overlap_time"] <= data["backward_comm_time"]
        assert data["straggler_rank"] in (0, 1) and data["straggler_lag"] >= 0
        assert "the others wait for rank" in text and "6 synchronised steps" in text


def test_the_rank_that_waits_least_is_the_one_that_others_wait_for() -> None:
    stats = Stats(3)
    for _ in range(50):
        stats.hear([0.02, 0.001, 0.03])
    rank, lag = stats.straggler()
    assert rank == 1 and abs(lag - 0.024) < 1e-3


def test_before_the_first_step() -> None:
    def alone() -> tuple[dict, str]:
        dist.init_process_group()
        m = DDP(nn.Linear(3, 4))
        return m._get_ddp_logging_data(), m.report()

    ((data, text),) = dist.simulate(alone, 1).results
    assert data["iteration"] == 0 and data["avg_waiting_time"] == 0
    assert "0 synchronised steps" in text and "wait for" not in text
