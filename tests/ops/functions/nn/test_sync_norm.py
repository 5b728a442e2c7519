"""Batch norm of several ranks as a function: digits, types, empty batches, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.comm.group.default_group import default_group
from disttrain.errors import ShapeError
from disttrain.ops.functions.nn.sync_norm import sync_batch_norm

FEATURES, STEPS = 3, 3


@pytest.mark.simulated
@pytest.mark.parametrize("kind", [dt.bfloat16, dt.float32])
def test_keeps_the_type_and_offsets_cost_no_digits(kind: dt.dtype) -> None:
    x = np.random.default_rng(0).standard_normal((8, 2)) + (1e4 if kind is dt.float32 else 4)

    def body() -> tuple:
        dist.init_process_group()
        rank = dist.get_rank()
        norm = nn.SyncBatchNorm(2)
        y = norm(core.wrap(x[4 * rank : 4 * rank + 4]).to(kind))
        dist.destroy_process_group()
        return y.dtype is kind, y.float().detach().numpy()

    results = dist.simulate(body, 2).results
    rounded = core.wrap(x).to(kind).double().numpy()
    expected = (rounded - rounded.mean(0)) / np.sqrt(rounded.var(0) + 1e-5)
    assert all(same for same, _ in results)
    ours = np.concatenate([y for _, y in results])
    np.testing.assert_allclose(ours, expected, atol=2e-2 if kind is dt.bfloat16 else 2e-3)


def on_ranks(parts: list, run: Callable[..., Any]) -> list:
    """``run(group, part)`` on a rank for each part."""

    def body() -> Any:
        dist.init_process_group()
        found = run(default_group(), core.wrap(parts[dist.get_rank()]))
        dist.destroy_process_group()
        return found

    return dist.simulate(body, len(parts)).results


@pytest.mark.simulated
def test_means_of_uneven_and_empty_batches_are_those_of_the_whole() -> None:
    whole = np.random.default_rng(0).standard_normal((7, 2, 3))
    weight, bias = np.array([0.5, -2.0]), np.array([1.0, 3.0])

    def run(group: Any, x: dt.Tensor) -> tuple:
        mean, var = dt.zeros(2).double(), dt.ones(2).double()
        y = sync_batch_norm(x, mean, var, *map(core.wrap, (weight, bias)), group, 0.25, 1e-3)
        return y.numpy(), mean.numpy(), var.numpy()

    found = on_ranks([whole[:5], whole[5:5], whole[5:]], run)
    centre, spread = whole.mean((0, 2)), whole.var((0, 2))
    want = (whole - centre[:, None]) / np.sqrt(spread[:, None] + 1e-3) * weight[:, None]
    np.testing.assert_allclose(
        np.concatenate([f[0] for f in found]), want + bias[:, None], rtol=1e-12
    )
    for _, mean, var in found:
        np.testing.assert_allclose(mean, 0.25 * centre, rtol=1e-12)
        np.testing.assert_allclose(var, 0.75 + 0.25 * whole.var((0, 2), ddof=1), rtol=1e-12)


@pytest.mark.simulated
def test_without_a_value_on_any_rank_statistics_stay() -> None:
    def run(group: Any, x: dt.Tensor) -> tuple:
        mean = dt.full((FEATURES,), 5.0)
        return sync_batch_norm(x, mean, None, None, None, group).shape, mean.tolist()

    nothing = np.zeros((0, FEATURES), np.float32)
    assert on_ranks([nothing, nothing], run) == [((0, FEATURES), [5.0] * FEATURES)] * 2


@pytest.mark.simulated
def test_gradients_go_to_all_ranks_values() -> None:
    """The sum over all ranks does not depend on a common shift of all values."""

    def run(group: Any, x: dt.Tensor) -> np.ndarray:
        x.requires_grad_()
        place = dt.arange(x.numel(), dtype=dt.float64).reshape(x.shape)
        (sync_batch_norm(x, None, None, None, None, group) * place).sum().backward()
        return x.grad.numpy()

    parts = [np.random.default_rng(r).standard_normal((r + 2, 2)) for r in range(3)]
    g, x = np.concatenate(on_ranks(parts, run)), np.concatenate(parts)
    assert np.abs(g).max() > 0.1
    np.testing.assert_allclose(g.sum(0), 0.0, atol=1e-12)
    np.testing.assert_allclose((g * (x - x.mean(0))).sum(0), 0.0, atol=1e-3)  # nor on a scale


@pytest.mark.simulated
def test_what_has_no_channels_or_the_wrong_ones_is_refused() -> None:
    def run(group: Any, x: dt.Tensor) -> list[str]:
        said = []
        for wrong, weight in ((x[0], None), (x, dt.ones(FEATURES + 1))):
            with pytest.raises(ShapeError) as told:
                sync_batch_norm(wrong, None, None, weight, None, group)
            said.append(str(told.value))
        return said

    for shape, channels in on_ranks([np.ones((2, FEATURES), np.float32)] * 2, run):
        assert shape == "sync_batch_norm: input of shape [3] given; needed (N, C, ...)"
        assert "weight" in channels and "3" in channels
