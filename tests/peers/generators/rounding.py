"""How far results in float32 lie from those in float64: ours against PyTorch's, over drawn data.

A case is a function of (library, tensors) that gives tensors, and the shapes of what it takes. Data
is drawn at several offsets and scales: numbers far from zero beside their spread are what sums of
squares and running statistics lose digits to. Both libraries compute the results and all gradients
in float32; PyTorch in float64 says what is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

WITHIN = 1.5  # what the ratio of errors may be in the (geometric) mean over all data ...
ONCE = 8.0  # ... and once, where PyTorch was lucky with a rounding


@dataclass(frozen=True)
class Case:
    """``call(T, *tensors)`` gives a tensor or several; ``shapes(rng)`` draws those of the tensors,
    of which the ``drawn`` first lie at an offset, and ``kinds`` says what else may be drawn."""

    call: Callable
    shapes: Callable
    positive: bool = False  # probabilities, variances: no numbers below zero
    classes: bool = False  # the last shape is that of targets, below the second size of the first


def _map(rng: random.Random) -> tuple:
    """(N, C, places...), some of many places, some of none."""
    n, c = rng.choice((2, 3, 16, 64)), rng.choice((1, 3, 8))
    places = rng.choice(((), (5,), (100,), (8, 8), (33, 31)))
    return n if n * c * int(np.prod(places)) > c else 4, c, *places


def _rows(rng: random.Random) -> tuple:
    return rng.choice(((3, 7), (5, 64), (2, 1000), (4, 3, 33), (1, 10000), (64, 5)))


def _affine(rng: random.Random) -> list:
    shape = _map(rng)
    return [shape, shape[1:2], shape[1:2]]


def _affine_rows(rng: random.Random) -> list:
    shape = _rows(rng)
    return [shape, shape[-1:], shape[-1:]]


def _batch_norm(T: Any, x: Any, weight: Any, bias: Any) -> list:
    mean, var = T.zeros_like(weight), T.zeros_like(weight)
    mean, var = mean.detach(), var.detach()
    out = T.nn.functional.batch_norm(x, mean, var, weight, bias, True, 1.0)
    return [out, mean, var]


def _statistics(T: Any, x: Any) -> list:
    rows = x.shape[0] > 1  # the deviation of one number is nan
    several = [*T.std_mean(x.abs(), dim=0), x.std(dim=0)] if rows else []
    return [*T.var_mean(x.abs(), dim=-1), *several, x.var(-1), x.var(), x.std(correction=0)]


def _reductions(T: Any, x: Any) -> list:
    size = x.abs()  # sums of both signs cancel: then the error is a matter of luck
    norms = [x.norm(), x.norm(dim=-1), x.norm(p=1), x.norm(p=3)]
    return [size.sum(), size.sum(0), size.mean(-1), (x * x).sum(-1), *norms]


def _log_sums(T: Any, x: Any) -> list:
    return [x.logsumexp(-1), x.logsumexp(0), x.log_softmax(-1), x.log_softmax(0)]


def _softmax(T: Any, x: Any) -> list:
    return [x.softmax(-1), x.softmax(0), T.nn.functional.softmin(x, -1)]


def _classes(T: Any, x: Any, target: Any) -> list:
    F = T.nn.functional
    return [
        F.cross_entropy(x, target),
        F.cross_entropy(x, target, reduction="sum", label_smoothing=0.1),
        F.nll_loss(F.log_softmax(x, 1), target),
    ]


def _pairs(T: Any, x: Any, y: Any) -> list:
    F = T.nn.functional
    return [
        F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.5),
        F.mse_loss(x, y, reduction="sum"), F.soft_margin_loss(x / 50, y.detach().sign()),
        F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.cosine_similarity(x, y, -1),
        F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="sum"), F.pairwise_distance(x, y),
        F.gaussian_nll_loss(x, y.detach(), (y * 0 + 0.5).detach()),
        F.poisson_nll_loss(x, y.detach()),
        F.hinge_embedding_loss(x, y.detach().sign()),
    ]  # fmt: skip


def _chances(T: Any, x: Any, y: Any) -> list:
    F = T.nn.functional
    x, y = x / (1 + x), y / (1 + y)
    return [F.binary_cross_entropy(x, y.detach()), F.kl_div(x.log(), y.detach(), reduction="sum")]


def _group_norm(T: Any, x: Any, weight: Any, bias: Any) -> list:
    groups = 1 if x.shape[1] % 2 else 2
    return [T.nn.functional.group_norm(x, groups, weight, bias)]


def _layer_norm(T: Any, x: Any, weight: Any, bias: Any) -> list:
    return [T.nn.functional.layer_norm(x, weight.shape, weight, bias)]


CASES = {
    "batch_norm": Case(_batch_norm, _affine),
    "group_norm": Case(_group_norm, _affine),
    "instance_norm": Case(
        lambda T, x, w, b: [T.nn.functional.instance_norm(x, weight=w, bias=b)],
        lambda rng: [(3, 4, *rng.choice(((7,), (100,), (16, 16)))), (4,), (4,)],
    ),
    "layer_norm": Case(_layer_norm, _affine_rows),
    "rms_norm": Case(
        lambda T, x, w: [T.nn.functional.rms_norm(x, w.shape, w)],
        lambda rng: _affine_rows(rng)[:2],
    ),
    "normalize": Case(
        lambda T, x: [T.nn.functional.normalize(x, dim=-1)], lambda rng: [_rows(rng)]
    ),
    "local_response_norm": Case(
        lambda T, x: [T.nn.functional.local_response_norm(x, 3)], lambda rng: [(2, 5, 9)]
    ),
    "statistics": Case(_statistics, lambda rng: [_rows(rng)]),
    "reductions": Case(_reductions, lambda rng: [_rows(rng)]),
    "softmax": Case(_softmax, lambda rng: [_rows(rng)]),
    "log_sums": Case(_log_sums, lambda rng: [_rows(rng)]),
    "classes": Case(
        _classes, lambda rng: (lambda n, c: [(n, c), (n,)])(rng.choice((1, 8, 500)),
                                                           rng.choice((2, 10, 1000))),
        classes=True,
    ),
    "pairs": Case(_pairs, lambda rng: [_rows(rng)] * 2),
    "chances": Case(_chances, lambda rng: [_rows(rng)] * 2, positive=True),
}  # fmt: skip


def drawn(case: Case, seed: str) -> list[np.ndarray]:
    """Arrays in float32, the first at an offset of up to a few thousand spreads."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(rng.randrange(2**32))
    shapes = case.shapes(rng)
    offset, scale = rng.choice((0.0, 0.0, 1.0, -30.0, 1000.0)), rng.choice((1.0, 1.0, 1e-2, 30.0))
    arrays = [numbers.normal(size=shape) for shape in shapes]
    arrays[0] = arrays[0] * scale + offset
    if case.positive:
        arrays = [np.abs(a) + 1e-3 for a in arrays]
    arrays = [a.astype(np.float32) for a in arrays]
    if case.classes:
        arrays[-1] = numbers.integers(0, shapes[0][1], shapes[-1])
    return arrays


def computed(case: Case, T: Any, arrays: list[np.ndarray], kind: str) -> Iterator[tuple]:
    """(which result, its numbers in float64): results, then gradients by each that has one."""
    made = [T.tensor(a) for a in arrays]
    made = [t if t.dtype == T.int64 else t.to(getattr(T, kind)).requires_grad_() for t in made]
    results = case.call(T, *made)
    rng = np.random.default_rng(0)
    for i, result in enumerate(results):
        yield f"result {i}", _numbers(result)
        if not result.requires_grad:
            continue
        g = np.round(rng.normal(size=tuple(result.shape)), 2) + 1.0
        wanted = [t for t in made if t.requires_grad]
        given = T.tensor(g).to(result.dtype)
        found = T.autograd.grad(result, wanted, given, retain_graph=True, allow_unused=True)
        for j, grad in enumerate(found):
            if grad is not None:
                yield f"gradient of {j} by result {i}", _numbers(grad)


def _numbers(t: Any) -> np.ndarray:
    return np.array(t.detach().numpy(), np.float64)


@dataclass(frozen=True)
class Found:
    """Both errors of one result, each with a last place of its largest number added: what is
    beneath that is no difference."""

    name: str
    ours: float
    theirs: float
    where: str

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if np.isfinite(self.theirs) else 1.0


def errors(case: Case, ours: Any, peer: Any, seed: str) -> Iterator[Found]:
    """The errors of all results and gradients on the data of one seed."""
    arrays = drawn(case, seed)
    sides = (
        computed(case, ours, arrays, "float32"),
        computed(case, peer, arrays, "float32"),
        computed(case, peer, arrays, "float64"),
    )
    for (name, mine), (_, other), (_, right) in zip(*sides, strict=True):
        last = np.finfo(np.float32).eps * np.abs(right).max(initial=0.0) + 1e-37
        where = f"{seed} {[a.shape for a in arrays]}"
        yield Found(name, _error(mine, right) + last, _error(other, right) + last, where)


def worse(found: list[Found]) -> list[str]:
    """The results in which our errors are larger than PyTorch's, in the mean or by far once."""
    out = [f"{f.name}: {f.ours:.3g}, PyTorch's {f.theirs:.3g} ({f.where})" for f in found
           if not f.ratio <= ONCE]  # fmt: skip
    for name in dict.fromkeys(f.name for f in found):
        mean = np.exp(np.mean([np.log(f.ratio) for f in found if f.name == name]))
        if not mean <= WITHIN:
            out.append(f"{name}: {mean:.3g} times PyTorch's in the mean")
    return out


def _error(a: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs(np.where(a == right, 0.0, a - right)).max(initial=0.0))
