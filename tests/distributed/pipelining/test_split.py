"""Models cut into stages."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.distributed as dist
from disttrain import core, nn
from disttrain.core.random import manual_seed
from disttrain.distributed import pipelining as pp
from disttrain.distributed import simulate
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated


def test_even_costs() -> None:
    assert pp.split_by_cost([1, 1, 1, 1], 2) == [range(2), range(2, 4)]
    assert pp.split_by_cost([5, 1, 1, 1, 1, 1], 2) == [range(1), range(1, 6)]
    assert pp.split_by_cost([1, 2, 3, 4], 4) == [range(i, i + 1) for i in range(4)]
    with pytest.raises(ConfigError, match="at least one layer per stage"):
        pp.split_by_cost([1], 2)
    for seed in range(20):  # no other cut is better
        costs = np.random.default_rng(seed).integers(1, 9, 7).tolist()
        found = max(sum(costs[i] for i in r) for r in pp.split_by_cost(costs, 3))
        best = min(
            max(sum(costs[:i]), sum(costs[i:j]), sum(costs[j:]))
            for i in range(1, 6) for j in range(i + 1, 7)
        )  # fmt: skip
        assert found == best


def chain() -> nn.Sequential:
    manual_seed(0)
    inner = nn.Sequential(*[nn.Linear(3, 3) for _ in range(3)])
    return nn.Sequential(nn.Linear(3, 3), inner, nn.Linear(3, 3))


def test_layers_keep_their_names() -> None:
    m = nn.Sequential(*[nn.Linear(3, 3) for _ in range(5)])
    parts = pp.split_layers(m, 2)
    names = [n for p in parts for n, _ in p.named_parameters()]
    assert names == [n for n, _ in m.named_parameters()]
    assert [len(p) for p in pp.split_layers(list(m), 2, costs=[9, 1, 1, 1, 1])] == [1, 4]
    with pytest.raises(ConfigError, match="2 costs for 5 layers"):
        pp.split_layers(m, 2, costs=[1, 1])


def test_a_chain_is_cut_where_one_says() -> None:
    m = chain()
    x = core.wrap(np.ones((2, 3), np.float32))
    pipe = pp.pipeline(m, (x,), split_spec={"1.1": pp.SplitPoint.BEGINNING, "1": pp.SplitPoint.END})
    assert pipe.num_stages == 3
    parts = [pipe.get_stage_module(i) for i in range(3)]
    names = [n for p in parts for n, _ in p.named_parameters()]
    assert names == [n for n, _ in m.named_parameters()]
    out = x
    for p in parts:
        out = p(out)
    np.testing.assert_array_equal(out.detach().numpy(), m(x).detach().numpy())
    assert "stage 2" in repr(pipe)

    def body():
        dist.init_process_group()
        stage = pipe.build_stage(2, "cpu")
        other = pp.build_stage(parts[0], 0, pipe, "cpu")
        dist.destroy_process_group()
        return stage.is_last, other.is_first

    assert simulate(body, 1).results == [(True, True)]


def test_what_cannot_be_cut_says_so() -> None:
    assert pp.pipe_split() is None
    with pytest.raises(ConfigError, match="'7', which the model does not have"):
        pp.pipeline(chain(), split_spec={"7": pp.SplitPoint.END})
    with pytest.raises(ConfigError, match="nothing says where to cut"):
        pp.pipeline(chain(), (core.wrap(np.ones((2, 3), np.float32)),))
    with pytest.raises(ConfigError, match="Invalid stage index 5"):
        pp.pipeline(chain(), split_spec={"1": pp.SplitPoint.END}).get_stage_module(5)
