"""PowerSGD: what it computes, what it remembers, and that it trains."""

from __future__ import annotations

import io
import logging
import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.distributed.algorithms.ddp_comm_hooks.low_rank import Family, orthogonalize, plan
from disttrain.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    batched_powerSGD_hook,
    powerSGD_hook,
)
from disttrain.errors import ConfigError, LaunchError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

ROWS, COLS = 12, 10


# --- plans and matrices --------------------------------------------------------------------------


def test_only_what_shrinks_enough_is_compressed() -> None:
    shapes = [(8, 8), (8,), (40, 30), (), (40, 5, 6), (3, 3)]
    chosen = plan(shapes, rank=2, min_rate=2, batched=False)
    assert chosen.families == (Family((2,), 40, 30, 2), Family((4,), 40, 30, 2))
    assert chosen.plain == (0, 1, 3, 5)
    assert (chosen.before, chosen.after) == (64 + 8 + 2 * 1200 + 1 + 9, 64 + 8 + 2 * 140 + 1 + 9)
    assert plan(shapes, 2, 2, batched=True).families == (Family((2, 4), 40, 30, 2),)
    assert plan(shapes, 2, 0, batched=False).plain == ()


@pytest.mark.parametrize("cols", [1, 2, 3, 6])
def test_columns_become_orthonormal_and_span_the_same(cols: int) -> None:
    given = np.random.default_rng(cols).standard_normal((2, 9, cols))
    given[1, :, -1] = given[1, :, 0] * (1 + 1e-9) + 1e-7 * given[1, :, -1]  # almost dependent
    matrices = core.wrap(given.copy())
    orthogonalize(matrices)
    for made, wanted in zip(matrices.numpy(), given, strict=True):
        if cols != 2:  # two columns are made orthogonal once, as the field does
            np.testing.assert_allclose(made.T @ made, np.eye(cols), atol=1e-12)
        np.testing.assert_allclose(made @ (made.T @ wanted), wanted, atol=1e-6)


def test_columns_of_zeros_stay_zeros() -> None:
    matrices = dt.zeros(1, 4, 2)
    matrices[0, :, 1] = 2.0
    orthogonalize(matrices)
    assert matrices[0, :, 0].tolist() == [0.0] * 4 and matrices[0, :, 1].tolist() == [0.5] * 4


# --- what it does to gradients -------------------------------------------------------------------


def gradient(rank: int, step: int, kind=np.float64) -> np.ndarray:
    return np.random.default_rng([rank, step]).standard_normal((ROWS, COLS)).astype(kind)


def run(state: PowerSGDState, steps: int, hook=powerSGD_hook, of=gradient) -> list[np.ndarray]:
    """The reduced gradients of a matrix whose local ones are ``of(rank, step)``."""
    m = nn.Linear(COLS, ROWS, bias=False).double()
    m = dist.DistributedDataParallel(m)
    m.register_comm_hook(state, hook)
    out = []
    for step in range(steps):
        m.zero_grad()
        x = dt.eye(COLS, dtype=dt.float64)
        (m(x) * core.wrap(of(dist.get_rank(), step).T.copy())).sum().backward()
        out.append(m.module.weight.grad.numpy().copy())
    return out


def gram_schmidt(a: np.ndarray) -> np.ndarray:
    q, r = np.linalg.qr(a)
    return q * np.sign(np.diag(r))


def by_hand(state: PowerSGDState, q: np.ndarray, size: int, steps: int, start: int) -> list:
    """The algorithm in plain numpy; ``q`` is what the first round starts from."""
    errors = [np.zeros((ROWS, COLS)) for _ in range(size)]
    out = []
    for step in range(steps):
        local = [gradient(r, step) for r in range(size)]
        if step < start:
            out.append(sum(local) / size)
            continue
        local = [g + e for g, e in zip(local, errors, strict=True)]
        q = gram_schmidt(q)
        p = gram_schmidt(sum(g @ q for g in local))
        q = sum(g.T @ p for g in local) / size
        out.append(p @ q.T)
        if state.use_error_feedback:
            errors = [g - p @ q.T for g in local]
    return out


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("feedback", [True, False])
def test_equals_the_algorithm_written_down(feedback: bool, rank: int, size: int) -> None:
    def make() -> PowerSGDState:
        state = PowerSGDState(
            None, rank, start_powerSGD_iter=2, min_compression_rate=0.1,
            use_error_feedback=feedback,
        )  # fmt: skip
        q = np.random.default_rng(5).standard_normal(COLS * rank)
        state.p_memory_dict[0], state.q_memory_dict[0] = (
            dt.zeros(ROWS * rank).double(),
            core.wrap(q),
        )
        return state

    q = np.random.default_rng(5).standard_normal((COLS, rank))
    wanted = by_hand(make(), q, size, 6, 2)
    for ours in on_ranks(lambda: run(make(), 6), size):
        for a, b in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("hook", [powerSGD_hook, batched_powerSGD_hook])
@pytest.mark.parametrize("warm", [True, False])
def test_what_is_left_out_comes_later(warm: bool, hook) -> None:
    """Summed over steps, what was applied and the errors that are left are all the gradients."""
    steps = 7

    def body() -> tuple:
        state = PowerSGDState(
            None, 1, start_powerSGD_iter=2, min_compression_rate=0.1, warm_start=warm
        )
        applied = run(state, steps, hook)
        left = state.error_dict[0].numpy()[: ROWS * COLS].reshape(ROWS, COLS)
        return applied, left, bool(state.p_memory_dict)

    results = on_ranks(body)
    total = sum(gradient(r, s) for r in range(2) for s in range(steps)) / 2
    left = sum(left for _, left, _ in results) / 2
    np.testing.assert_allclose(sum(results[0][0]) + left, total, atol=1e-11)
    for applied, _, kept in results:
        assert kept is warm
        np.testing.assert_array_equal(applied[-1], results[0][0][-1])
        assert np.abs(applied[-1] - sum(gradient(r, steps - 1) for r in range(2)) / 2).max() > 0.1


def test_vectors_travel_as_they_are() -> None:
    def body() -> tuple:
        m = dist.DistributedDataParallel(nn.Linear(COLS, ROWS).double())
        state = PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=1)
        m.register_comm_hook(state, powerSGD_hook)
        for step in range(4):
            m.zero_grad()
            (m(dt.ones(1, COLS).double()) * (1.0 + dist.get_rank() + step)).sum().backward()
        return m.module.bias.grad.numpy(), int((state.error_dict[0] == 0).sum().item())

    for bias, exact in on_ranks(body):
        np.testing.assert_array_equal(bias, np.full(ROWS, 4.5))
        assert exact >= ROWS


def test_gradients_of_low_rank_are_exact() -> None:
    def thin(rank: int, step: int) -> np.ndarray:
        rng = np.random.default_rng([rank, step])
        return rng.standard_normal((ROWS, 1)) @ rng.standard_normal((1, COLS))

    def body() -> list:
        state = PowerSGDState(
            None, 2, start_powerSGD_iter=0, min_compression_rate=0.1, use_error_feedback=False,
            warm_start=False,
        )  # fmt: skip
        return run(state, 3, of=thin)

    for ours in on_ranks(body):
        for step, got in enumerate(ours):
            np.testing.assert_allclose(got, (thin(0, step) + thin(1, step)) / 2, atol=1e-11)


def test_matrices_of_one_shape_may_be_computed_together() -> None:
    def trained(together: bool) -> list[np.ndarray]:
        dt.manual_seed(0)
        m = nn.Sequential(*[nn.Linear(9, 9) for _ in range(3)], nn.Linear(9, 2)).double()
        m = dist.DistributedDataParallel(m)
        state = PowerSGDState(
            None, 1, start_powerSGD_iter=2, batch_tensors_with_same_shape=together
        )
        for memory, n in ((state.p_memory_dict, 27), (state.q_memory_dict, 27)):
            memory[0] = core.wrap(np.cos(np.arange(float(n))))
        m.register_comm_hook(state, powerSGD_hook)
        for step in range(4):
            m.zero_grad()
            x = core.wrap(np.random.default_rng([dist.get_rank(), step]).standard_normal((5, 9)))
            (m(x) ** 2).sum().backward()
        return [p.grad.numpy().copy() for p in m.parameters()]

    for one, each in on_ranks(lambda: (trained(True), trained(False))):
        for a, b in zip(one, each, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-11)


def test_unused_gradients_of_zeros_stay_zeros() -> None:
    def body() -> list:
        state = PowerSGDState(None, 2, start_powerSGD_iter=2, min_compression_rate=0.1)
        return run(state, 5, of=lambda rank, step: np.zeros((ROWS, COLS)))

    for ours in on_ranks(body):
        assert all((g == 0).all() for g in ours)


# --- training ------------------------------------------------------------------------------------


def distance_after(steps: int, **settings) -> float:
    """How far a matrix stays from its goal when each gradient is drowned in a larger one of rank 1
    that the next one takes back."""

    def body() -> float:
        rng = np.random.default_rng(0)
        goal = core.wrap(rng.standard_normal((ROWS, COLS)))
        loud = rng.standard_normal((ROWS, 1)) @ rng.standard_normal((1, COLS))
        loud = core.wrap(60 / np.linalg.norm(loud) * loud)
        m = nn.Linear(COLS, ROWS, bias=False).double()
        m.weight.data.zero_()
        m = dist.DistributedDataParallel(m)
        state = PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=0.1, **settings)
        m.register_comm_hook(state, powerSGD_hook)
        o = dt.optim.SGD(m.parameters(), lr=0.015)
        for step in range(steps):
            o.zero_grad()
            w = m(dt.eye(COLS, dtype=dt.float64)).t()
            (((w - goal) ** 2).sum() + (w * loud).sum() * (-1.0) ** step).backward()
            o.step()
        return float(((m.module.weight.detach() - goal) ** 2).sum().item() ** 0.5)

    return on_ranks(body, 1)[0]


def test_error_feedback_makes_training_converge() -> None:
    with_it, without = distance_after(400), distance_after(400, use_error_feedback=False)
    assert with_it < 1.5 and without > 8


# --- state ---------------------------------------------------------------------------------------


def by_pickle(state: PowerSGDState) -> PowerSGDState:
    return pickle.loads(pickle.dumps(state))


def by_save(state: PowerSGDState) -> PowerSGDState:
    """As PyTorch's example does it, with the hook beside the state."""
    file = io.BytesIO()
    dt.save({"hook": powerSGD_hook, "state": state}, file)
    file.seek(0)
    found = dt.load(file, weights_only=False)
    assert found["hook"] is powerSGD_hook
    return found["state"]


@pytest.mark.parametrize("copied", [by_pickle, by_save])
def test_a_saved_state_goes_on_as_if_nothing_had_happened(copied) -> None:
    def body() -> bool:
        whole = PowerSGDState(None, 2, start_powerSGD_iter=2, min_compression_rate=0.1)
        run(whole, 4)
        loaded = copied(whole)
        assert loaded.process_group is dist.group.WORLD
        loaded.process_group = None
        first, second = run(whole, 3), run(loaded, 3)
        same = all((a == b).all() for a, b in zip(first, second, strict=True))
        left_out = "process_group" not in whole.__getstate__()
        return same and left_out and loaded.iter == whole.iter == 7

    assert on_ranks(body) == [True, True]


def test_statistics_of_compression(caplog) -> None:
    def body() -> tuple:
        state = PowerSGDState(
            None, 1, start_powerSGD_iter=2, min_compression_rate=2,
            compression_stats_logging_frequency=2,
        )  # fmt: skip
        run(state, 6)
        return state.compression_stats()

    with caplog.at_level(logging.INFO):
        results = on_ranks(body, 1)
    before, after = 4 * ROWS * COLS, 4 * (ROWS + COLS)
    assert results == [(before / after, before, after)]
    shown = [r.getMessage() for r in caplog.records if "Compression stats" in r.getMessage()]
    assert len(shown) == 2 and "iter 2" in shown[0] and "iter 4" in shown[1]


def test_settings_without_a_meaning_are_refused() -> None:
    with pytest.raises(ConfigError, match="start_powerSGD_iter"):
        PowerSGDState(None, start_powerSGD_iter=1)
    PowerSGDState(None, start_powerSGD_iter=0, use_error_feedback=False, warm_start=False)


def test_a_state_of_another_model_is_refused() -> None:
    def body() -> None:
        state = PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=0.1)
        state.error_dict[0] = dt.zeros(3)
        run(state, 3)

    with pytest.raises(LaunchError, match="remembers 3 elements"):
        on_ranks(body)


def test_where_nothing_is_worth_compressing_gradients_are_averaged() -> None:
    def body() -> list:
        return run(PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=1e9), 4)

    for ours in on_ranks(body):
        for step, got in enumerate(ours):
            np.testing.assert_allclose(got, (gradient(0, step) + gradient(1, step)) / 2, atol=1e-12)
