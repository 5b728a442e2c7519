"""What depends on data is computed anew by every call: indices, shapes, masks, numbers read."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import ConfigError, DimError
from support.agree import check

F = nn.functional


def data(i: int, n: int = 6):
    gen = dt.Generator().manual_seed(i)
    return dt.randn(n, generator=gen)


def ints(x, top: int = 4):
    return (x.abs() * 10).long() % top


def put(y, m, t):
    y = y.clone()
    y[m] = t
    return y


def put_values(x):
    y = x.clone()
    y[x > 0] = x[x > 0] * 2
    return y


KEPT = dt.randn(6)

SPECIMENS = {
    "mask": lambda x: x[x > 0].sum(),
    "mask of an outer tensor": lambda x: KEPT[x > 0].sum(),
    "mask and slice": lambda x: dt.outer(x, x)[x > 0, 1:].sum(0),
    "index of integers": lambda x: x[ints(x)] * 2,
    "nonzero": lambda x: (x > 0).nonzero().sum(),
    "nonzero of the input": lambda x: x.clamp(min=0).nonzero().sum(),
    "nonzero tuple": lambda x: (x > 0).nonzero(as_tuple=True)[0].sum(),
    "argwhere": lambda x: dt.argwhere(x > 0).sum(),
    "where(c)": lambda x: dt.where(x > 0)[0].sum(),
    "where(c, a, b)": lambda x: dt.where(x > 0, x, -x),
    "masked_select": lambda x: dt.masked_select(x, x > 0).sum(),
    "masked_fill": lambda x: x.masked_fill(x > 0, 3.0),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, KEPT),
    "y[m] = t": lambda x: put(x, x > 0, dt.tensor(5.0)),
    "y[m] = 2": lambda x: put(x, x > 0, 2.0),
    "y[i] = t": lambda x: put(x, ints(x), dt.tensor(5.0)),
    "y[m] = values": put_values,
    "unique": lambda x: dt.unique(ints(x)).sum(),
    "unique counts": lambda x: dt.unique(ints(x), return_counts=True)[1].float().max(),
    "unique_consecutive": lambda x: dt.unique_consecutive(ints(x, 2)).sum(),
    "repeat_interleave(tensor)": lambda x: dt.repeat_interleave(x, ints(x)).sum(),
    "bucketize": lambda x: dt.bucketize(x, dt.tensor([-0.5, 0.0, 0.5])),
    "searchsorted": lambda x: dt.searchsorted(x.sort()[0], dt.tensor([-0.5, 0.0, 0.5])),
    "histc": lambda x: dt.histc(x, bins=4, min=-1, max=1),
    "bincount": lambda x: dt.bincount(ints(x), minlength=4),
    "one_hot": lambda x: F.one_hot(ints(x), 4).sum(0),
    "one_hot without classes": lambda x: F.one_hot(ints(x)).sum(0),
    "count_nonzero": lambda x: dt.count_nonzero(x > 0),
    "topk": lambda x: dt.topk(x, 2)[1],
    "sort": lambda x: dt.sort(x)[1],
    "argsort": lambda x: x.argsort(),
    "argmax": lambda x: x.argmax(),
    "gather": lambda x: x.gather(0, ints(x)),
    "scatter_add": lambda x: dt.zeros(4).scatter_add(0, ints(x), x),
    "scatter_reduce": lambda x: dt.zeros(4).scatter_reduce(0, ints(x), x, "amax"),
    "index_add": lambda x: dt.zeros(4).index_add(0, ints(x), x),
    "index_select": lambda x: x.index_select(0, ints(x)),
    "take": lambda x: dt.take(x, ints(x)),
    "median": lambda x: x.median(),
    "kthvalue": lambda x: x.kthvalue(2)[0],
    "cumsum": lambda x: x.cumsum(0),
    "equal": lambda x: x * 2 if dt.equal(x.abs(), x) else x,
    "allclose": lambda x: x * 2 if dt.allclose(x.abs(), x) else x,
    "item": lambda x: x * x.sum().item(),
    "if": lambda x: x * 2 if x.sum() > 0 else x,
    "len of a mask": lambda x: x * len(x[x > 0]),
    "shape of a mask": lambda x: x * x[x > 0].shape[0],
    "tolist": lambda x: x * sum(ints(x).tolist()),
    "numpy": lambda x: x * float(x.numpy()[0]),
    "iteration": lambda x: sum(v for v in x if v > 0),
    "range of a tensor": lambda x: x * sum(range(int(ints(x)[0]))),
    "max with a number": lambda x: max(x.sum(), x[0]),
    "split by lengths": lambda x: x.split([1 + int(ints(x, 5)[0]), 5 - int(ints(x, 5)[0])])[0],
    "embedding": lambda x: F.embedding(ints(x), dt.outer(KEPT[:4], KEPT)),
    "multinomial": lambda x: dt.multinomial(x.abs(), 3),
    "bernoulli": lambda x: dt.bernoulli(x.sigmoid()),
    "poisson": lambda x: dt.poisson(x.abs()),
    "nll ignoring": lambda x: F.cross_entropy(
        dt.outer(x, x), (ints(x, 6) - 1).clamp(min=0), ignore_index=0
    ),
    "ctc lengths": lambda x: x.narrow(0, int(ints(x)[0]) % 3, 2),
    "tril of data": lambda x: dt.outer(x, x).tril(int(ints(x)[0])),
    "roll by data": lambda x: x.roll(int(ints(x)[0])),
    "arange to data": lambda x: dt.arange(int(ints(x).sum())).sum(),
    "full with data": lambda x: dt.full((2,), float(x[0])),
    "tensor of data": lambda x: dt.tensor([float(v) for v in x]),
    "unbind": lambda x: x.unbind(0)[0] * 2,
}


@pytest.mark.parametrize("name", SPECIMENS)
def test_functions_of_data(name):
    def make():
        return SPECIMENS[name], lambda i, step: step(data(i)), lambda: None

    check(make)


@pytest.mark.parametrize("masked", ["select", "index", "where", "weights", "scalar"])
def test_masked_losses_in_train_steps(masked):
    def make():
        model = nn.Linear(3, 4)
        optimizer = dt.optim.AdamW(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            keep = y > 0
            out = model(x)
            loss = F.cross_entropy(out, y, reduction="none")
            if masked == "select":
                loss = loss.masked_select(keep).mean()
            elif masked == "index":
                loss = F.cross_entropy(out[keep], y[keep])
            elif masked == "where":
                loss = dt.where(keep, loss, 0.0).sum() / keep.sum()
            elif masked == "weights":
                loss = (loss * keep).sum() / keep.sum().clamp(min=1)
            else:
                loss[keep] = 0.0
                loss = loss.sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        def between(i, step):
            x = data(i, 15).view(5, 3)
            return step(x, ints(data(i + 50, 5)))

        return step, between, lambda: list(model.parameters())

    check(make, 6)


CAPTURED = {
    "embedding": lambda x: F.embedding(ints(x), dt.outer(KEPT[:4], KEPT)),
    "index of integers": lambda x: x[ints(x)] * 2,
    "index from the end": lambda x: x[ints(x) - 4],
    "one_hot": lambda x: F.one_hot(ints(x), 4),
    "nll_loss": lambda x: F.nll_loss(dt.outer(x, x).log_softmax(1), ints(x) - 1, ignore_index=-1),
    "nll_loss of all": lambda x: F.nll_loss(dt.outer(x, x).log_softmax(1), ints(x)),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), x.abs().clamp(max=1)),
    "bucketize": lambda x: dt.bucketize(x, dt.tensor([-0.5, 0.0, 0.5])),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_what_has_a_fixed_shape_is_captured(name):
    def make():
        return CAPTURED[name], lambda i, step: step(data(i)), lambda: None

    assert len(check(make, warns=False).graphs) == 1


def test_replays_check_what_eager_calls_check():
    rows = dt.outer(KEPT, KEPT)
    steps = {
        "out of range": (lambda x: F.embedding(x, rows), dt.tensor([1]), dt.tensor([6])),
        "out of": (lambda x: rows[x].sum(), dt.tensor([1]), dt.tensor([-7])),
        "target 6 is": (lambda x: F.nll_loss(rows[:1], x), dt.tensor([1]), dt.tensor([6])),
        "between 0 and 1": (
            lambda x: F.binary_cross_entropy(x, x), dt.tensor([0.5]), dt.tensor([1.5])
        ),
    }  # fmt: skip
    for message, (fn, good, bad) in steps.items():
        run = dt.compile(fn)
        run(good)
        run(good)
        assert len(run.graphs) == 1
        with pytest.raises((DimError, ConfigError), match=message):
            run(bad)
