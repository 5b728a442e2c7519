"""Large reductions between hosts, driven frame by frame: results, windows, what is garbage."""

from __future__ import annotations

import random

import numpy as np
import pytest

from disttrain.comm.calls.reduce_ops import ReduceOp, make_reducer
from disttrain.comm.transports.tcp import frames
from disttrain.comm.transports.tcp.arithmetic import Arithmetic
from disttrain.comm.transports.tcp.exchange import WINDOW, Exchange
from disttrain.comm.transports.tcp.pipe import Garbage
from disttrain.comm.transports.tcp.plans import layout_of, owned_pieces, shared_pieces

pytestmark = pytest.mark.simulated

KEY, STEP = 77, 5
F4 = np.dtype("f4")


class Ranks:
    """All ranks' exchanges, and the frames on their way between them."""

    def __init__(self, hosts, arrays, op=ReduceOp.SUM, sizes=None):
        self.layout, n = layout_of(hosts), len(hosts)
        dtype, count = arrays[0].dtype, arrays[0].size
        if sizes is None:
            pieces = shared_pieces(self.layout, count, STEP)
        else:
            pieces = owned_pieces(self.layout, sizes, STEP)
        self.outs = [None if sizes is None else np.zeros(sizes[r], dtype) for r in range(n)]
        self.way = {(a, b): [] for a in range(n) for b in range(n)}
        self.all = []
        for me in range(n):
            mates = self.layout.hosts[self.layout.host_of[me]]
            sums = Arithmetic(op, dtype, self.layout, STEP)
            views = {r: arrays[r] for r in mates}
            self.all.append(Exchange(KEY, me, self.layout, pieces, sums, views, self.outs[me]))

    def step(self, me):
        def send(rank, head, data):
            self.way[me, rank].append((head, data.tobytes()))

        self.all[me].advance(send)

    def deliver(self, src, dst):
        head, data = self.way[src, dst].pop(0)
        kind, _, words, index, where, size = frames.HEAD.unpack(head)
        assert (kind, words, where, size) == (frames.DATA, 0, KEY, len(data))
        self.all[dst].target(src, index, size)[:] = data
        self.all[dst].taken(src, index)

    def run(self, seed):
        draw = random.Random(seed)
        while True:
            busy = [pair for pair, line in self.way.items() if line]
            waiting = [r for r, x in enumerate(self.all) if not x.is_over]
            if not waiting and not busy:
                return
            if busy and draw.random() < 0.6:
                self.deliver(*draw.choice(busy))
            else:
                self.step(draw.randrange(len(self.all)))


def drawn(n, count, dtype):
    rng = np.random.default_rng(count)
    return [(rng.standard_normal(count) * 4).astype(dtype) for _ in range(n)]


def reduced(op, arrays):
    out = np.empty_like(arrays[0])
    make_reducer(op, arrays[0].dtype, len(arrays))([a.copy() for a in arrays], out)
    return out


@pytest.mark.parametrize("hosts", ["ab", "aab", "abab", "aabbcc", "abcab"])
@pytest.mark.parametrize("dtype", ["f4", "f2", "i8"])
def test_all_ranks_get_the_bits_of_one_reducer(hosts, dtype):
    for seed, count in enumerate((1, 23, 64)):
        arrays = drawn(len(hosts), count, dtype)
        want = reduced(ReduceOp.SUM, arrays)
        Ranks(hosts, arrays).run(seed)
        for rank, got in enumerate(arrays):
            assert got.tobytes() == want.tobytes(), (hosts, rank)


@pytest.mark.parametrize("hosts", ["ab", "aab", "abab"])
def test_every_rank_gets_its_own_part(hosts):
    sizes = [7, 0, 12, 3][: len(hosts)]
    arrays = drawn(len(hosts), sum(sizes), F4)
    before = [a.copy() for a in arrays]
    want = reduced(ReduceOp.MAX, arrays)
    ranks = Ranks(hosts, arrays, ReduceOp.MAX, sizes)
    ranks.run(3)
    starts = np.cumsum([0, *sizes])
    for rank, out in enumerate(ranks.outs):
        assert out.tolist() == want[starts[rank] : starts[rank + 1]].tolist()
    assert all((a == b).all() for a, b in zip(arrays, before)), "the inputs stay"


def test_an_agent_is_a_window_of_pieces_ahead_and_no_more():
    count = STEP * 100
    ranks = Ranks("ab", drawn(2, count, F4))
    for _ in range(3):
        ranks.step(0)
    sent = ranks.way[0, 1]
    assert len(sent) == WINDOW
    for _ in range(5):
        ranks.deliver(0, 1)
    assert len(sent) == WINDOW - 5
    ranks.step(1)  # answers five, and asks for its own
    answers = [f for f in ranks.way[1, 0] if frames.HEAD.unpack(f[0])[3] & 1]
    assert len(answers) == 5 and len(ranks.way[1, 0]) == 5 + WINDOW
    while ranks.way[1, 0]:
        ranks.deliver(1, 0)
    ranks.step(0)
    asked = [f for f in sent if not frames.HEAD.unpack(f[0])[3] & 1]
    assert len(asked) == WINDOW, "five answers, five more pieces"


def test_nothing_is_over_before_its_answers():
    arrays = drawn(2, 3, F4)
    ranks = Ranks("ab", arrays)  # one piece, which rank 0 owns
    assert not ranks.all[0].is_over and not ranks.all[1].is_over
    ranks.step(1)
    assert not ranks.all[1].is_over
    ranks.deliver(1, 0)
    ranks.step(0)
    assert ranks.all[0].is_over and ranks.all[0].arrived == 1
    ranks.deliver(0, 1)
    assert not ranks.all[1].is_over
    ranks.step(1)
    assert ranks.all[1].is_over and arrays[0].tolist() == arrays[1].tolist()


def test_what_nobody_asked_for_is_garbage():
    owner, agent = (Ranks("ab", drawn(2, 3, F4)).all[k] for k in range(2))
    for index, size in ((0, 8), (2, 12), (1, 12)):  # too short, no such piece, its own result
        with pytest.raises(Garbage):
            owner.target(1, index, size)
    owner.target(1, 0, 12)
    with pytest.raises(Garbage):
        owner.target(1, 0, 12)  # twice
    with pytest.raises(Garbage):
        agent.target(0, 0, 12)  # a piece for who does not own it
    with pytest.raises(Garbage):
        agent.target(0, 1, 8)
