"""Parts of several hosts joined: the bits of one reducer over all ranks, however they lie."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.comm.calls.reduce_ops import ReduceOp, make_reducer
from disttrain.comm.transports.tcp.arithmetic import Arithmetic
from disttrain.comm.transports.tcp.plans import layout_of
from disttrain.errors import DTypeError

COUNT = 37
PLACES = ("ab", "aab", "abb", "abab", "aaabbbcc", "abcabcab")


def values(dtype, ranks):
    rng = np.random.default_rng(3)
    return [(rng.standard_normal(COUNT) * 9).astype(dtype) for _ in range(ranks)]


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_host_gets_the_bits_of_one_reducer(places, op, dtype):
    layout = layout_of(places)
    parts = values(dtype, len(places))
    want = np.empty(COUNT, dtype)
    make_reducer(op, np.dtype(dtype), len(places))([p.copy() for p in parts], want)
    own = Arithmetic(op, np.dtype(dtype), layout, COUNT)
    sent = {}
    for host in range(len(layout.hosts)):
        sent[host] = np.empty(own.unit_bytes(host, COUNT), np.uint8)
        own.units(host, parts.__getitem__, sent[host])
    for host in sent:
        out = np.empty(COUNT, dtype)
        others = {other: raw for other, raw in sent.items() if other != host}
        own.join(host, parts.__getitem__, others, out)
        assert out.tobytes() == want.tobytes()


def test_one_rank_travels_as_it_is_and_sums_in_their_own_type():
    own = Arithmetic(ReduceOp.SUM, np.dtype("float16"), layout_of("abb"), COUNT)
    assert own.is_plain(0)
    assert (own.unit_dtype((0, 1)), own.unit_dtype((0, 2))) == ("float16", "float32")
    assert own.unit_bytes(0, 10) == 20


def test_an_operator_without_a_meaning_is_refused():
    with pytest.raises(DTypeError, match="BAND"):
        Arithmetic(ReduceOp.BAND, np.dtype("float32"), layout_of("ab"), COUNT)
