"""Whether rows leave each other alone, read from programs; and held against their results."""

import random

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import DisttrainError
from disttrain.serve.rows import apart

X = dt.zeros(2, 3)
CLOSE = 1e-5


def program(fn, *args, name="x"):
    return dt.export(fn, args or (X,), dynamic={name: {0: "n"}})


def written(x):
    y = x.clone()
    y[:, 0] = 1
    return y


class Encoder(dt.nn.Module):
    """Words into vectors, by attention; ``last`` is one more layer."""

    def __init__(self, last=None) -> None:
        super().__init__()
        self.words = dt.nn.Embedding(10, 8)
        self.layer = dt.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.last = last

    def forward(self, x):
        h = self.layer(self.words(x))
        h = h if self.last is None else self.last(h)[0]
        return h.mean(1), h[:, -1], h.max(1).values


def net(*layers):
    return dt.nn.Sequential(*layers).eval()


APART = {
    "softmax": lambda x: x.softmax(1),
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(2, 1).values,
    "norm": lambda x: x / x.norm(dim=1, keepdim=True),
    "flat": lambda x: (x.reshape(-1) * 2).reshape(-1, 3),
    "across": lambda x: (x.T * 2).T,
    "joined": lambda x: dt.cat([x, x * 2], 1) @ dt.ones(6, 2),
    "outer": lambda x: dt.einsum("bi,bj->bij", x, x),
    "ones": lambda x: x + dt.ones(x.shape[0], 1),
    "windows": lambda x: x.reshape(-1, 1, 3).expand(-1, 4, 3).reshape(-1, 12),
    "masked": lambda x: x.masked_fill(x > 0, 0.0),
}
MIXED = {
    "a little of the mean": lambda x: x - 1e-9 * x.mean(0),
    "the mean of all": lambda x: x + 1e-9 * x.reshape(-1).mean(),
    "rarely": lambda x: dt.where(x > 100, x.sum(0).expand_as(x), x),
    "the largest": lambda x: x / x.abs().max().clamp(min=1e9),
    "the first": lambda x: x + 1e-9 * x[0],
    "softmax": lambda x: x + 1e-9 * x.softmax(0),
    "running": lambda x: x + 1e-9 * x.cumsum(0),
    "order": lambda x: x.sort(0).values,
    "backwards": lambda x: x.flip(0),
    "their products": lambda x: 1e-9 * (x @ x.T) @ x,
    "distances": lambda x: 1e-9 * dt.cdist(x, x).sum(1),
    "their place": lambda x: x + 1e-9 * dt.arange(x.shape[0]).reshape(-1, 1),
    "their number": lambda x: x / x.shape[0],
    "a number made of it": lambda x: x * dt.full((1,), x.shape[0]),
    "a sum of ones": lambda x: x * dt.ones(x.shape[0], x.shape[0]).sum(1, keepdim=True),
}


@pytest.mark.parametrize("case", APART)
def test_rows_that_are_for_themselves(case) -> None:
    assert apart(program(APART[case]), "n") is True


@pytest.mark.parametrize("case", MIXED)
def test_rows_that_see_each_other(case) -> None:
    """However little, and however rarely."""
    assert apart(program(MIXED[case]), "n") is False


def test_networks() -> None:
    nn = dt.nn
    images = net(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.LayerNorm(36), nn.Linear(36, 2),
    )  # fmt: skip
    assert apart(program(images, dt.zeros(2, 1, 8, 8), name="input"), "n") is True
    words = dt.zeros(2, 5, dtype=dt.int64)
    assert apart(program(Encoder().eval(), words), "n") is True
    recurrent = Encoder(nn.GRU(8, 8, batch_first=True)).eval()
    assert apart(program(recurrent, words), "n") is None  # its loop says nothing of rows


def test_what_no_rule_tells_is_not_known() -> None:
    assert apart(program(written), "n") is None


STEPS = (
    lambda x, k: x * (k + 2), lambda x, k: x + x.flip(k % x.ndim),
    lambda x, k: x.cumsum(k % x.ndim),
    lambda x, k: x.transpose(0, k % x.ndim), lambda x, k: x + x.sum(k % x.ndim, keepdim=True),
    lambda x, k: x.unsqueeze(k % (x.ndim + 1)), lambda x, k: x.softmax(k % x.ndim),
    lambda x, k: dt.stack([x, -x], k % (x.ndim + 1)).sum(k % (x.ndim + 1)),
    lambda x, k: x.reshape(-1, 3) * 2 if x.ndim > 2 else x.reshape(-1).unsqueeze(1).tanh(),
    lambda x, k: x.roll(1, k % x.ndim), lambda x, k: x.mean(k % x.ndim, keepdim=True) - x,
)  # fmt: skip


def test_random_programs_keep_what_is_read_from_them() -> None:
    rng, found = random.Random(0), []
    numbers = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    for _ in range(80):
        steps = [(rng.choice(STEPS), rng.randrange(4)) for _ in range(rng.randrange(1, 6))]

        def fn(x, steps=steps):
            for step, k in steps:
                x = step(x, k)
            return x

        try:
            saved = program(fn)
        except (DisttrainError, RuntimeError, IndexError):
            continue  # it fixes how many rows there are
        if not saved.outputs[0].shape or str(saved.outputs[0].shape[0]) != "n":
            continue
        known = apart(saved, "n")
        whole = saved.run({"x": numbers})["output"]
        parts = [saved.run({"x": numbers[i : i + 1]})["output"] for i in range(4)]
        same = np.allclose(whole, np.concatenate(parts), CLOSE, CLOSE)
        assert known is not True or same, str(saved)
        found.append((known, same))
    assert {(True, True), (False, False)} <= set(found)
