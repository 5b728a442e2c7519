"""Steps of a rank without input: gradients and settings of the last one that has some."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.optim.join_steps import _settings, exchange
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def test_who_has_no_input_is_lent_gradients_and_settings():
    def body():
        rank = dist.get_rank()
        owned = [[dt.ones(1, requires_grad=True) for _ in range(2)] for _ in range(3)]
        for r, params in enumerate(owned):
            params[0].grad = dt.full((1,), 100.0 * rank + r)
        groups = [{"params": owned[rank], "lr": float(rank), "betas": (0.1 * rank, 0.9)}]
        lent = exchange(dist.group.WORLD, rank > 0, owned, groups)
        if rank > 0:
            return lent, groups[0]["lr"]
        ((param, grad),) = lent.items()  # the second has no gradient there
        assert param is owned[0][0]
        return grad.item(), groups[0]["lr"], groups[0]["betas"], groups[0]["params"] == owned[0]

    first, second, third = on_ranks(body, 3)
    assert first == (200.0, 2.0, (0.2, 0.9), True)
    assert second == (None, 1.0) and third == (None, 2.0)


def test_several_ranks_may_be_without_input():
    def body():
        rank = dist.get_rank()
        owned = [[dt.ones(1, requires_grad=True)] for _ in range(3)]
        for r, params in enumerate(owned):
            params[0].grad = dt.full((1,), 10.0 * rank + r)
        groups = [{"params": owned[rank], "lr": rank}]
        lent = exchange(dist.group.WORLD, rank == 1, owned, groups)
        return lent and next(iter(lent.values())).item(), groups[0]["lr"]

    assert on_ranks(body, 3) == [(10.0, 1), (None, 1), (12.0, 1)]


def test_only_plain_settings_travel():
    hook = print
    given = {"params": [1], "lr": 0.5, "nesterov": True, "betas": (0.9, (0.5, None)), "name": "x",
             "hook": hook, "tensor": dt.ones(1), "mixed": (1, hook), "foreach": None}  # fmt: skip
    assert _settings([given]) == [
        {"lr": 0.5, "nesterov": True, "betas": (0.9, (0.5, None)), "name": "x", "foreach": None}
    ]
