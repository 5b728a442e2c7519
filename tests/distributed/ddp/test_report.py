"""What a wrapper tells of its costs: sizes, times, and which rank is waited for."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import context, core, nn
from disttrain import distributed as dist

pytestmark = pytest.mark.simulated

DDP = dist.DistributedDataParallel


class Slow(nn.Module):
    """Takes as many seconds on the rank's clock as it is told."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))

    def forward(self, x):
        context.sleep(self.seconds)
        return self.layers(x)


def body() -> tuple[dict, str]:
    dist.init_process_group()
    m = DDP(Slow(2.0 if dist.get_rank() == 1 else 0.5), bucket_cap_mb=1e-4)
    for _ in range(6):
        m.zero_grad()
        m(core.wrap(np.ones((2, 3), np.float32))).sum().backward()
    return m._get_ddp_logging_data(), m.report()


def test_sizes_times_and_the_straggler() -> None:
    for rank, (data, text) in enumerate(dist.simulate(body, 2).results):
        assert (data["world_size"], data["rank"], data["iteration"]) == (2, rank, 6)
        assert data["num_parameter_tensors"] == 4 and data["total_parameter_size_bytes"] == 4 * 26
        assert data["has_rebuilt_buckets"] == 1 and data["comm_hook"] == ""
        assert data["bytes_per_step"] > data["total_parameter_size_bytes"]
        forward, waiting = (2e9, 0) if rank == 1 else (0.5e9, 1.5e9)  # virtual nanoseconds
        assert data["avg_forward_compute_time"] == data["forward_compute_time"] == forward
        assert data["avg_waiting_time"] == data["backward_comm_time"] == waiting
        assert data["backward_compute_time"] == data["backward_compute_comm_overlap_time"] == 0
        lag = 1.5e9 * (1 - 0.9**5)  # a running mean over the five steps before
        assert data["straggler_rank"] == 1 and abs(data["straggler_lag"] - lag) < 1e3
        assert "the others wait for rank 1" in text and "6 synchronised steps" in text


def test_before_the_first_step() -> None:
    def alone() -> tuple[dict, str]:
        dist.init_process_group()
        m = DDP(nn.Linear(3, 4))
        return m._get_ddp_logging_data(), m.report()

    ((data, text),) = dist.simulate(alone, 1).results
    assert data["iteration"] == 0 and data["avg_waiting_time"] == 0
    assert "0 synchronised steps" in text and "wait for" not in text
