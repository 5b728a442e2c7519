"""DDP's inner parts under PyTorch's names."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.compat.torch.distributed import reducers
from disttrain.core.random import manual_seed

pytestmark = pytest.mark.simulated


def floats(*sizes: int, dtype: type = np.float32) -> list:
    return [core.wrap(np.zeros(n, dtype)) for n in sizes]


def test_buckets_by_size() -> None:
    assign = reducers._compute_bucket_assignment_by_size
    assert assign(floats(10, 10, 10, 10), [40, 80]) == ([[0], [1, 2], [3]], [40, 80, 80])
    pairs = zip(floats(50, 50, 50), floats(25, 25, 25, dtype=np.float64), strict=True)
    mixed = [t for pair in pairs for t in pair]
    assert assign(mixed, [200, 400]) == ([[0], [1], [2, 4], [3, 5]], [200, 200, 400, 400])
    assert assign(floats(5, 5, 5), [100], [False, True, False])[0] == [[0, 2], [1]]
    assert assign(floats(5, 5), [4], [], [1, 0])[0] == [[1], [0]]


def test_a_reducer_of_a_program_s_own() -> None:
    def body() -> list[list[float]]:
        dist.init_process_group()
        manual_seed(0)
        m = nn.Sequential(nn.Linear(1, 1).double(), nn.Linear(1, 1).double())
        params = list(m.parameters())
        with pytest.raises(RuntimeError, match="buckets of one type"):
            reducers.Reducer([*params, *floats(3)], [[0, 4]], [1], dist.group.WORLD)
        reducer = reducers.Reducer(params, [[0, 1], [2, 3]], [1, 1], dist.group.WORLD,
                                   find_unused_parameters=True)  # fmt: skip
        out = []
        for _ in range(2):
            m.zero_grad()
            reducer.prepare_for_forward()
            loss = m[0](core.wrap(np.full((1, 1), 1.0 + dist.get_rank()))).sum()
            reducer.prepare_for_backward(loss)
            loss.backward()
            out.append([p.grad.item() for p in params[:2]])
            assert params[2].grad is None
        return out

    assert dist.simulate(body, 2).results == [[[1.5, 1.0]] * 2] * 2
