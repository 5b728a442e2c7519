"""The likelihood of labels over all alignments: against a sum over every path."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DTypeError, ShapeError

F = dt.nn.functional
RNG = np.random.default_rng(0)


def collapsed(path, blank):
    return [k for k, _ in itertools.groupby(path) if k != blank]


def likelihood(probabilities, target, blank):
    """The sum of the probabilities of all paths that collapse to the target."""
    time, classes = probabilities.shape
    return sum(
        np.prod([probabilities[t, k] for t, k in enumerate(path)])
        for path in itertools.product(range(classes), repeat=time)
        if collapsed(path, blank) == list(target)
    )


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("target", [[], [1], [1, 1]])
@pytest.mark.parametrize("time", [1, 3, 5])
def test_against_all_paths(time, target, blank):
    p = RNG.dirichlet(np.ones(3), size=time)
    with np.errstate(divide="ignore"):
        want = -np.log(likelihood(p, target, blank))
    x = dt.from_numpy(np.log(p))[:, None]
    labels = dt.tensor([target], dtype=dt.int64).reshape(1, len(target))
    out = F.ctc_loss(x, labels, [time], [len(target)], blank, "none")
    np.testing.assert_allclose(out.numpy(), [want], rtol=1e-10)
    if np.isinf(want):
        assert F.ctc_loss(x, labels, [time], [len(target)], blank, "sum", True).item() == 0


def test_gradients_behind_a_softmax():
    scores, targets = RNG.normal(size=(4, 2, 3)), dt.tensor([[1, 2], [2, 0]])
    x = dt.from_numpy(scores).requires_grad_()

    def loss(x):
        return F.ctc_loss(x.log_softmax(2), targets, [4, 3], [2, 1], reduction="sum")

    loss(x).backward()
    step = 1e-6
    for t, n, k in ((0, 0, 1), (2, 1, 0), (3, 0, 2), (3, 1, 1)):
        apart = np.zeros_like(scores)
        apart[t, n, k] = step
        sides = [loss(dt.from_numpy(scores + sign * apart)).item() for sign in (1, -1)]
        np.testing.assert_allclose(
            x.grad[t, n, k].item(), (sides[0] - sides[1]) / (2 * step), atol=1e-6
        )
    assert not x.grad[3, 1].any()  # beyond its length


def test_rows_lengths_and_reductions():
    x = dt.from_numpy(RNG.normal(size=(5, 2, 4))).log_softmax(2)
    padded, row = dt.tensor([[1, 2, 3], [3, 0, 0]]), dt.tensor([1, 2, 3, 3])
    each = F.ctc_loss(x, padded, dt.tensor([5, 4]), dt.tensor([3, 1]), reduction="none")
    assert dt.equal(F.ctc_loss(x, row, (5, 4), (3, 1), reduction="none"), each)
    mean = F.ctc_loss(x, padded, [5, 4], [3, 1])
    np.testing.assert_allclose(mean.item(), (each[0] / 3 + each[1]).item() / 2)
    one = F.ctc_loss(x[:, 0], padded[0], dt.tensor(5), dt.tensor(3), reduction="none")
    assert one.shape == () and one.item() == each[0].item()
    none = F.ctc_loss(x, padded, [0, 0], [0, 1], reduction="none")
    assert none.tolist() == [0, np.inf]


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.int8])
def test_targets_of_any_type_are_whole_numbers(dtype):
    x = dt.rand(3, 1, 3).log_softmax(-1)
    expected = F.ctc_loss(x, dt.tensor([[1, 2]]), [3], [2])
    assert F.ctc_loss(x, dt.tensor([[1, 2]], dtype=dtype), [3], [2]).item() == expected.item()


def test_misuse():
    x, row = dt.zeros(3, 1, 2), dt.tensor([1])
    with pytest.raises(DTypeError, match="integers"):
        F.ctc_loss(x, row.to(dt.complex64), [3], [1])
    with pytest.raises(ConfigError, match="at most 3"):
        F.ctc_loss(x, row, [4], [1])
    with pytest.raises(ConfigError, match="blank"):
        F.ctc_loss(x, row, [3], [1], blank=2)
    with pytest.raises(ShapeError, match="batch_size"):
        F.ctc_loss(x, row, [3, 3], [1])
    with pytest.raises(ShapeError, match="in a row"):
        F.ctc_loss(x, row, [3], [2])
    with pytest.raises(ConfigError, match="reduction"):
        F.ctc_loss(x, row, [3], [1], reduction="all")
    with pytest.raises(DTypeError, match="integral"):
        F.ctc_loss(x, row, dt.tensor([3.0]), [1])


def test_nan_stays_nan():
    x = dt.zeros(3, 2, 2)
    x[1, 0] = float("nan")
    found = F.ctc_loss(x, dt.tensor([[1], [1]]), [3, 3], [1, 1], reduction="none")
    assert np.isnan(found[0].item()) and np.isfinite(found[1].item())
