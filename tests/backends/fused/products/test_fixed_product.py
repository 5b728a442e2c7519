"""A product's bits depend on the numbers alone: not on rows, columns, strides, threads or lanes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from disttrain import context
from disttrain.backends import threads
from disttrain.backends.fused.products import fixed_product
from disttrain.backends.llvm.kernels import recurrence
from disttrain.ops.primitives.linalg import by_panels, by_rows
from disttrain.ops.primitives.linalg import product as linalg_product
from support.rounding import Sums

SUMS = Sums(terms=515, depth=1)
RNG = np.random.default_rng(1)
needs_code = pytest.mark.skipif(
    recurrence.lanes() not in (8, 16), reason="no vector code of that kind on this processor"
)
SHAPES = ((1, 1, 1), (3, 7, 5), (1, 300, 33), (50, 1, 64), (70, 129, 130), (41, 515, 34))


def matrices(m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = RNG.standard_normal((m, k)), RNG.standard_normal((k, n))
    return x.astype(np.float32), w.astype(np.float32)


def by_hand(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Runs of 128 terms, each by fused multiplications and additions (exact in float64, rounded
    once: products of two float32 are, and so are sums of those of like size)."""
    out = np.zeros((len(x), w.shape[1]), np.float32)
    for begin in range(0, len(w), 128):
        run = np.zeros_like(out)
        for t in range(begin, min(begin + 128, len(w))):
            term = x[:, t, None].astype(np.longdouble) * w[t].astype(np.longdouble)
            run = (run.astype(np.longdouble) + term).astype(np.float32)
        out = out + run
    return out


@needs_code
@pytest.mark.parametrize("shape", SHAPES)
def test_every_element_is_the_same_sum(shape) -> None:
    x, w = matrices(*shape)
    out = fixed_product.product(x, w)
    np.testing.assert_array_equal(out, by_hand(x, w))
    SUMS.equal(out, (x.astype(np.float64) @ w).astype(np.float32))


@needs_code
@pytest.mark.parametrize("shape", SHAPES)
def test_it_depends_on_no_other_row_or_column(shape) -> None:
    x, w = matrices(*shape)
    out = fixed_product.product(x, w)
    m, _, n = shape
    for rows, columns in itertools.product((slice(0, 1), slice(m // 3, m)), (slice(n // 2, n),)):
        np.testing.assert_array_equal(
            fixed_product.product(x[rows], w[:, columns]), out[rows, columns]
        )


@needs_code
@pytest.mark.parametrize("shape", SHAPES)
def test_it_depends_on_no_strides(shape) -> None:
    x, w = matrices(*shape)
    out = fixed_product.product(x, w)
    wide = np.zeros((2 * shape[0], 3 * shape[1]), np.float32)
    wide[::2, ::3] = x
    ways = (np.asfortranarray(x), wide[::2, ::3], x[::-1].copy()[::-1], x.copy())
    for a, b in itertools.product(ways, (np.asfortranarray(w), w[:, ::-1].copy()[:, ::-1])):
        np.testing.assert_array_equal(fixed_product.product(a, b), out)


@needs_code
def test_it_depends_on_no_number_of_threads() -> None:
    x, w = matrices(300, 200, 190)
    before, found = threads.count(), []
    try:
        for count in (1, 2, 3, 4):
            threads.set_count(count)
            found.append(fixed_product.product(x, w))
    finally:
        threads.set_count(before)
    for out in found:
        np.testing.assert_array_equal(out, found[0])


@needs_code
def test_narrower_registers_give_the_same_bits(monkeypatch) -> None:
    x, w = matrices(70, 129, 130)
    out = fixed_product.product(x, w)
    turned = fixed_product.product(np.asfortranarray(x), w)
    monkeypatch.setattr(recurrence, "lanes", lambda: 8)
    recurrence.sequence.cache_clear()
    fixed_product._run.cache_clear()
    try:
        np.testing.assert_array_equal(fixed_product.product(x, w), out)
        np.testing.assert_array_equal(fixed_product.product(np.asfortranarray(x), w), turned)
    finally:
        monkeypatch.undo()
        recurrence.sequence.cache_clear()
        fixed_product._run.cache_clear()


def test_other_types_and_nothing_are_left_to_others() -> None:
    x, w = matrices(3, 4, 5)
    assert fixed_product.product(x.astype(np.float64), w.astype(np.float64)) is None
    assert fixed_product.product(x, w.astype(np.float64)) is None
    assert fixed_product.product(x[:0], w) is None
    assert fixed_product.product(x[:, :0], w[:0]) is None


@needs_code
def test_a_rank_that_wants_it_has_it_for_all_products_of_matrices() -> None:
    """Of few rows, of many, transposed, into given memory; not for other ranks."""
    rank = context.Rank()
    for m, k, n in ((1, 4, 3), (8, 300, 70), (33, 40, 50), (200, 190, 210)):
        x, w = matrices(m, k, n)
        wanted = by_hand(x, w)
        for a, b in itertools.product((x, np.asfortranarray(x)), (w, np.asfortranarray(w))):
            out = np.empty_like(wanted)
            with context.attach(rank):
                rank.fixed_products = True
                by_panels(a, b, out)
                found = (linalg_product(a, b), by_panels(a, b), by_rows(a, b.T), out)
            for got in found:
                np.testing.assert_array_equal(got, wanted)
    assert not context.current().fixed_products


_PROGRAM = """
import hashlib
import disttrain as dt
from disttrain import distributed as dist, nn
dist.init_process_group()
dt.manual_seed(0)
model = nn.Sequential(nn.Linear(70, 200), nn.ReLU(), nn.Linear(200, 9))
net = dist.DistributedDataParallel(model, deterministic="global", virtual_shards=2)
for shard in net.shards.ids:
    net(dt.randn(90, 70)).square().mean().backward()
print(hashlib.sha256(b"".join(p.grad.numpy().tobytes() for p in model.parameters())).hexdigest())
"""


@needs_code
def test_gradients_depend_on_no_blas_and_none_of_its_threads() -> None:
    told = set()
    for kernels, count in (("Nehalem", "2"), ("Haswell", "1")):
        says = {**os.environ, "OPENBLAS_CORETYPE": kernels, "OPENBLAS_NUM_THREADS": count}
        says.pop("OMP_NUM_THREADS", None)
        run = [sys.executable, "-c", _PROGRAM]
        told.add(subprocess.run(run, env=says, capture_output=True, text=True, check=True).stdout)
    assert len(told) == 1 and len(told.pop().strip()) == 64
