"""Tables with sparse gradients under DDP: the rows that some rank asked for, as one process has."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from disttrain import autograd, core, distributed, nn, optim
from disttrain.distributed.ddp.reducer.sparse import common_rows
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

DDP = distributed.DistributedDataParallel
RANKS, ROWS = 2, 12


class Tables(nn.Module):
    """Two sparse tables, of which one is not always used, and something dense."""

    def __init__(self):
        super().__init__()
        self.a = nn.Embedding(ROWS, 2, sparse=True, padding_idx=3)
        self.b = nn.EmbeddingBag(ROWS, 2, sparse=True, mode="sum")
        self.c = nn.Linear(2, 1)
        fill = np.random.default_rng(0)
        for p in self.parameters():
            p.array[...] = fill.normal(size=p.array.shape)

    def forward(self, numbers, use_b):
        out = self.c(self.a(numbers).sum(1).tanh())
        # the gradients of some rows are zero everywhere
        out = out * (numbers.array.min() > 0)
        return out + self.c(self.b(numbers)) if use_b else out


def told(model):
    """Gradients: rows and values."""
    out = []
    for p in model.parameters():
        g = p.grad
        if g is not None and g.is_sparse:
            g = g.coalesce()
            out.append((g._indices().array[0].tolist(), g._values().array.tolist()))
        else:
            out.append(None if g is None else g.array.tolist())
    return out


def batches(seed, steps):
    """For each step: numbers of each rank, whether each uses b, and whether it is averaged."""
    draw = random.Random(seed)
    out = []
    for step in range(steps):
        numbers = [
            np.array([[draw.randrange(ROWS) for _ in range(2)] for _ in range(2)])
            for _ in range(RANKS)
        ]
        synced = step == steps - 1 or draw.random() < 0.7
        out.append((numbers, [draw.random() < 0.6 for _ in range(RANKS)], synced))
    return out


def train(model, numbers, uses, optimizers, losses):
    for i, use in zip(numbers, uses, strict=True):
        (model(core.wrap(i), use).sum() / losses).backward()
    found = told(model)
    if optimizers is not None:
        for one in optimizers:
            one.step()
        model.zero_grad()
    return found


def optimizers_of(model):
    few = [p for n, p in model.named_parameters() if "c." not in n]
    return optim.SparseAdam(few, lr=0.1), optim.SGD(model.c.parameters(), lr=0.1)


def one_process(seed, steps, always, synced_always):
    model = Tables()
    both = optimizers_of(model)
    out = []
    for numbers, uses, synced in batches(seed, steps):
        uses, synced = [True] * RANKS if always else uses, synced or synced_always
        found = train(model, numbers, uses, both if synced else None, RANKS)
        if synced:
            out.append(found)
    return out, [p.array.tolist() for p in model.parameters()]


@pytest.mark.parametrize("options", [
    {}, {"static_graph": True}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True},
    {"find_unused_parameters": True, "gradient_as_bucket_view": True},
], ids=str)  # fmt: skip
def test_training_is_that_of_one_process(options):
    find = "find_unused_parameters" in options
    static = "static_graph" in options
    for seed in range(4):

        def body(seed=seed):
            rank = distributed.get_rank()
            model = DDP(Tables(), **options)
            both = optimizers_of(model.module)
            out = []
            for numbers, uses, synced in batches(seed, 6):
                mine = uses[rank] if find else True
                synced = synced or static
                with contextlib.nullcontext() if synced else model.no_sync():
                    found = train(model, numbers[rank : rank + 1], [mine], None, 1)
                if synced:
                    out.append(found)
                    for one in both:
                        one.step()
                    model.zero_grad()
            return out, [p.array.tolist() for p in model.parameters()]

        expected = one_process(seed, 6, not find, static)
        for found in on_ranks(body):
            for mine, theirs in zip(found[0], expected[0], strict=True):
                for g, h in zip(mine, theirs, strict=True):
                    assert (g is None) == (h is None), seed
                    if isinstance(h, tuple):
                        assert isinstance(g, tuple) and g[0] == h[0], seed
                        np.testing.assert_allclose(g[1], h[1], rtol=1e-5, atol=1e-6)
                    elif h is not None:
                        np.testing.assert_allclose(g, h, rtol=1e-5, atol=1e-6)
            for p, q in zip(found[1], expected[1], strict=True):
                np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3])
def test_every_rank_learns_the_rows_of_all(size):
    def body():
        rank = distributed.get_rank()
        mine = [np.array([rank, 5]), np.arange(rank), np.zeros(0, np.int64)]
        return [rows.tolist() for rows in common_rows(distributed.group.WORLD, mine)] + common_rows(
            distributed.group.WORLD, []
        )

    expected = [sorted({*range(size), 5}), list(range(size - 1)), []]
    assert on_ranks(body, size) == [expected] * size


def test_a_rank_without_input_takes_part():
    def body():
        rank = distributed.get_rank()
        model = DDP(nn.Embedding(6, 1, sparse=True))
        out = []
        with model.join():
            for step in range(1 + rank):
                model.zero_grad()
                model(core.wrap(np.array([[rank, step + 2]]))).sum().backward()
                out.append(model.module.weight.grad.coalesce()._indices().array[0].tolist())
        return out

    assert on_ranks(body) == [[[0, 1, 2]], [[0, 1, 2], [1, 3]]]


def test_a_table_that_was_frozen_for_a_while_has_sparse_gradients_again():
    table = nn.Embedding(4, 1, sparse=True)
    for rows in ([1], [2]):
        table.zero_grad()
        table(core.wrap(np.array(rows))).sum().backward()
        assert table.weight.grad.is_sparse
        assert table.weight.grad._indices().array.tolist() == [rows]
        table.requires_grad_(False)
        table.requires_grad_(True)


def test_rows_of_a_backward_that_writes_no_gradient_are_forgotten():
    table = nn.Embedding(4, 1, sparse=True)
    autograd.grad(table(core.wrap(np.array([1]))).sum(), [table.weight])
    table(core.wrap(np.array([2]))).sum().backward()
    assert table.weight.grad._indices().array.tolist() == [[2]]
