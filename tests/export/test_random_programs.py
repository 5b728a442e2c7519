"""Programs of operations drawn at random, of open sizes: as files they compute what the functions
do, or say which sizes they are for."""

from __future__ import annotations

import random

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import CaptureError, DisttrainError
from support.cases.exported import drawn, reread

F = dt.nn.functional


def written(a):
    a = a.clone()
    a[0].zero_()
    a.view(-1)[-1] = 3
    a[1:] = a[:-1].clone()
    return a


ONE = {
    "softmax": lambda a: a.softmax(0), "mean": lambda a: a.mean(-1, keepdim=True),
    "turned": lambda a: a.transpose(0, -1), "flat": lambda a: a.flatten(),
    "rows": lambda a: a.reshape(a.shape[0], -1), "tail": lambda a: a[1:],
    "half": lambda a: a[: a.shape[0] // 2], "every other": lambda a: a[::2],
    "last": lambda a: a[-1], "rolled": lambda a: a.flip(0).roll(1, 0),
    "running": lambda a: a.cumsum(0), "sorted": lambda a: a.sort(0)[0],
    "padded": lambda a: F.pad(a, (1, 2)), "repeated": lambda a: a.repeat_interleave(2, 0),
    "sizes": lambda a: a * a.shape[0] + a.shape[-1] / a.numel(),
    "mask": lambda a: a.masked_fill(dt.ones(a.shape[-2], a.shape[-1]).triu(1) > 0, 0.0),
    "numbers": lambda a: a * dt.arange(a.shape[-1]), "written": written,
    "gathered": lambda a: a.gather(0, a.argsort(0)), "windows": lambda a: a.unfold(0, 2, 1),
    "largest": lambda a: a.topk(2, 0)[0], "gram": lambda a: a @ a.transpose(-1, -2),
    "expanded": lambda a: a.unsqueeze(1).expand(a.shape[0], 2, *a.shape[1:]),
    "parts": lambda a: a.chunk(2, 0)[0], "norm": lambda a: F.layer_norm(a, a.shape[-1:]),
    "scattered": lambda a: dt.zeros_like(a).scatter(0, a.argsort(0), a),
}  # fmt: skip
TWO = {
    "sum": lambda a, b: a + b, "joined": lambda a, b: dt.cat([a, b], 0),
    "side by side": lambda a, b: dt.cat([a, b], -1), "product": lambda a, b: a @ b,
    "cut": lambda a, b: a[: b.shape[0]], "chosen": lambda a, b: dt.where(a > b, a, b),
    "distances": lambda a, b: a.unsqueeze(1) - b.unsqueeze(0), "bias": lambda a, b: a + b.mean(0),
}  # fmt: skip


def args_of(b, t):
    return drawn(0, b, t), drawn(1, t, 4), drawn(2, b, 3)


def made(seed):
    """A function of ``args_of``: steps that go for one set of sizes."""
    draw = random.Random(seed)
    values, steps = list(args_of(4, 6)), []
    for _ in range(40):
        count = 1 if draw.random() < 0.6 else 2
        fn = draw.choice(list((ONE if count == 1 else TWO).values()))
        given = [draw.randrange(len(values)) for _ in range(count)]
        try:
            value = fn(*(values[i] for i in given))
        except (DisttrainError, IndexError):
            continue
        if len(steps) < 5 and 0 < value.numel() < 5000 and 0 < value.ndim < 5:
            steps.append((fn, given))
            values.append(value)

    def run(x, y, z):
        found = [x, y, z]
        for fn, given in steps:
            found.append(fn(*(found[i] for i in given)))
        return tuple(found[3:])

    return run


@pytest.mark.parametrize("first", (0, 12))
def test_programs(first):
    exported = 0
    for seed in range(first, first + 6):
        fn = made(seed)
        try:
            program = reread(dt.export(fn, args_of(4, 6), dynamic=[{0: "b", 1: "t"}, {0: "t"},
                                                                   {0: "b"}]))  # fmt: skip
        except CaptureError:
            continue
        exported += 1
        for sizes in ((4, 6), (1, 1), (2, 2), (7, 3), (5, 9)):
            args = args_of(*sizes)
            try:
                found = program(*args)
            except DisttrainError:
                assert sizes != (4, 6), seed
                continue
            for one, other in zip(fn(*args), found, strict=True):
                assert np.array_equal(one.array, other.array, equal_nan=True), (seed, sizes)
    assert exported > 3
