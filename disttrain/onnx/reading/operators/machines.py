"""Support vector machines (domain ai.onnx.ml): kernels, votes of pairs, probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import OperatorError
from ....nn import functional as F
from ....ops import api
from ..table import ML, operator
from .classic import labelled, row
from .trees import after


def _kernel(x: Tensor, vectors: Tensor, kind: str, numbers: Any) -> Tensor:
    """What each row of ``x`` has in common with each vector."""
    gamma, start, degree = numbers or (0.0, 0.0, 0.0)
    if kind == "RBF":
        difference = x.unsqueeze(1) - vectors
        return api.exp((difference * difference).sum(-1) * -gamma)
    product = F.linear(x, vectors)
    if kind == "LINEAR":
        return product
    if kind not in ("POLY", "SIGMOID"):
        raise OperatorError(f"kernel {kind!r}; known are LINEAR, POLY, RBF, SIGMOID")
    product = product * gamma + start
    return api.tanh(product) if kind == "SIGMOID" else product**degree


@operator("SVMRegressor", domain=ML)
def _regressor(
    x: Tensor, *, coefficients: Any, kernel_params: Any = None, kernel_type: str = "LINEAR",
    n_supports: int = 0, one_class: int = 0, post_transform: str = "NONE", rho: Any,
    support_vectors: Any = None,
) -> Tensor:  # fmt: skip
    x, weights = x.to(dtypes.float32), row(coefficients)
    if n_supports:
        vectors = row(support_vectors).reshape(n_supports, -1)
        x = _kernel(x, vectors, kernel_type, kernel_params)
    out = F.linear(x, weights.reshape(1, -1)) + rho[0]
    if one_class:
        out = api.where(out > 0, api.ones_like(out), -api.ones_like(out))
    return after(out, post_transform)


@operator("SVMClassifier", domain=ML)
def _classifier(
    x: Tensor, *, classlabels_ints: Any = None, classlabels_strings: Any = None, coefficients: Any,
    kernel_params: Any = None, kernel_type: str = "LINEAR", post_transform: str = "NONE",
    prob_a: Any = None, prob_b: Any = None, rho: Any, support_vectors: Any = None,
    vectors_per_class: Any = None,
) -> Any:  # fmt: skip
    labels = classlabels_ints or classlabels_strings or (0,)
    x, weights = x.to(dtypes.float32), row(coefficients)
    if not vectors_per_class:
        scores = F.linear(x, weights.reshape(len(labels), -1)) + rho[0]
        return labelled(labels, api.argmax(scores, -1)), after(scores, post_transform)
    count = sum(vectors_per_class)
    common = _kernel(x, row(support_vectors).reshape(count, -1), kernel_type, kernel_params)
    scores = _pairs(common, weights.reshape(-1, count), rho, vectors_per_class)
    best = labelled(labels, _most_voted(scores, len(labels)))
    if prob_a:
        shares = api.tensor(_probabilities(scores.numpy(), prob_a, prob_b, len(labels)))
        return best, after(shares, post_transform)
    if len(labels) == 2:
        scores = api.cat([-scores, scores], -1)
    return best, after(scores, post_transform)


def _pairs(common: Tensor, weights: Tensor, rho: Any, counts: Sequence[int]) -> Tensor:
    """For each pair of classes a score above 0 where the first one is chosen."""
    ends = [0, *itertools.accumulate(counts)]
    scores = []
    for number, (i, j) in enumerate(itertools.combinations(range(len(counts)), 2)):
        first, second = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        total = (common[:, first] * weights[j - 1, first]).sum(-1)
        total = total + (common[:, second] * weights[i, second]).sum(-1)
        scores.append(total + rho[number])
    return api.stack(scores, -1)


def _most_voted(scores: Tensor, classes: int) -> Tensor:
    votes = np.zeros((scores.shape[0], classes), np.int64)
    for found, (i, j) in zip(scores.detach().cpu().numpy().T, _places(classes)):
        votes[:, i] += found > 0
        votes[:, j] += found <= 0
    return api.tensor(votes.argmax(-1))


def _places(classes: int) -> Any:
    return itertools.combinations(range(classes), 2)


def _probabilities(scores: np.ndarray, a: Any, b: Any, classes: int) -> np.ndarray:
    """Of classes, from those of pairs (Wu, Lin, Weng 2004, the second way)."""
    pairs = np.zeros((len(scores), classes, classes))
    for n, (i, j) in enumerate(_places(classes)):
        with np.errstate(over="ignore"):
            share = 1 / (1 + np.exp(scores[:, n].astype(np.float64) * a[n] + b[n]))
        pairs[:, i, j] = share.clip(1e-7, 1 - 1e-7)
        pairs[:, j, i] = 1 - pairs[:, i, j]
    return np.array([_joined(r) for r in pairs], np.float32).reshape(-1, classes)


def _joined(pairs: np.ndarray) -> np.ndarray:
    """The minimum of the sum of (r_ji p_i - r_ij p_j)² over shares, one share after another."""
    count = len(pairs)
    q = -pairs.T * pairs
    np.fill_diagonal(q, (pairs**2).sum(0))
    shares = np.full(count, 1 / count)
    for _ in range(max(100, count)):
        slope = q @ shares
        total = shares @ slope
        if abs(slope - total).max() < 0.005 / count:
            break
        for t in range(count):
            step = (total - slope[t]) / q[t, t]
            shares[t] += step
            total = (total + step * (step * q[t, t] + 2 * slope[t])) / (1 + step) ** 2
            slope = (slope + step * q[t]) / (1 + step)
            shares /= 1 + step
    return shares
