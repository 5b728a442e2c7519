"""One function on all devices: in one process and over ranks."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import func as F
from disttrain.distributed.spmd import pmap
from disttrain.distributed.spmd.pmap import size_of
from disttrain.errors import ConfigError, ShapeError
from support.simulated import on_ranks


def step(x, w):
    return [F.psum(x * w, "i"), x + F.axis_index("i")]


def run(x, w, ends=(0, 0)):
    f = pmap(lambda x, w: step(x, w), "i", [1, None], lambda outs: list(ends), 2)
    return [t.tolist() for t in f(x, w)]


X = dt.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])  # devices along dimension 1
W = dt.tensor(2.0)


def test_ranks_and_one_process_agree():
    summed, moved = run(X, W)
    assert summed == [[22.0, 44.0, 66.0]] * 2
    assert moved == [[1.0, 2.0, 3.0], [11.0, 21.0, 31.0]]

    def body():
        me = dist.get_rank()
        return run(X[:, me : me + 1], W)

    for me, (one, other) in enumerate(on_ranks(body)):
        assert one == [summed[me]] and other == [moved[me]]
    assert run(X, W, (None, 1))[0] == summed[0]
    with pytest.raises(ConfigError, match="got axis spec None"):
        run(X, W, (0, None))


@pytest.mark.parametrize(
    ("shapes", "axes", "given", "error", "text"),
    [
        ([(2,)], [None], None, ConfigError, "at least one argument with a mapped axis"),
        ([()], [0], None, ShapeError, "rank should be at least 1, but is only 0"),
        ([(2,), (3,)], [0, 0], None, ShapeError, "inconsistent sizes"),
        ([(2,)], [0], 3, ConfigError, "axis_size 3 doesn't match received axis_size 2"),
        ([(9,)], [0], None, ConfigError, "requires 9 logical devices, but only 8"),
    ],
)
def test_sizes(shapes, axes, given, error, text):
    with pytest.raises(error, match=text):
        size_of("f", shapes, axes, given, 8)
    assert size_of("f", [(2, 4), ()], [1, None], 4, 8) == 4
