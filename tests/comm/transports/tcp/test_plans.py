"""Who reduces what between hosts: every element once, by the tree over all ranks, work shared."""

from __future__ import annotations

import itertools
from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from disttrain.comm.calls.reduce_ops import ReduceOp, left_size, make_reducer, premul_sum
from disttrain.comm.transports.tcp.arithmetic import Arithmetic
from disttrain.comm.transports.tcp.plans import (
    Join,
    layout_of,
    owned_pieces,
    partner,
    shared_pieces,
)

LAYOUTS = ["ab", "aab", "abb", "abab", "aabb", "abcabc", "aaabbbb", "abacabad", "aaaabbbbcc"]


def leaves(node):
    if isinstance(node, Join):
        return leaves(node.left) + leaves(node.right)
    return list(range(node[0], node[0] + node[1]))


@pytest.mark.parametrize("hosts", LAYOUTS)
def test_units_are_the_largest_subtrees_of_a_host(hosts):
    layout = layout_of(hosts)

    def is_subtree(first, count, lo, n):
        if (first, count) == (lo, n):
            return True
        if n == 1:
            return False
        cut = left_size(n)
        return is_subtree(first, count, lo, cut) or is_subtree(first, count, lo + cut, n - cut)

    assert leaves(layout.root) == list(range(len(hosts)))
    for host, units in enumerate(layout.units):
        ranks = [r for first, count in units for r in range(first, first + count)]
        assert ranks == list(layout.hosts[host])
        assert all(is_subtree(*unit, 0, len(hosts)) for unit in units)


def test_neighbours_send_one_unit_a_host_and_strangers_several():
    assert layout_of("aabb").units == (((0, 2),), ((2, 2),))
    assert layout_of("abab").units == (((0, 1), (2, 1)), ((1, 1), (3, 1)))
    assert layout_of("aaaab").units == (((0, 4),), ((4, 1),))
    assert layout_of("aaabb").units == (((0, 2), (2, 1)), ((3, 1), (4, 1)))


@pytest.mark.parametrize("hosts", LAYOUTS)
def test_shared_pieces_cover_everything_and_share_the_work(hosts):
    layout = layout_of(hosts)
    pieces = shared_pieces(layout, 1009, 10)
    assert [p.index for p in pieces] == list(range(len(pieces)))
    assert [p.lo for p in pieces] == [0, *[p.hi for p in pieces[:-1]]] and pieces[-1].hi == 1009
    for p in pieces:
        assert [layout.host_of[a] for a in p.agents] == list(range(len(layout.hosts)))
        assert p.agents[layout.host_of[p.owner]] == p.owner
    owned = Counter(layout.host_of[p.owner] for p in pieces)
    assert max(owned.values()) - min(owned.values()) <= 1
    for host, ranks in enumerate(layout.hosts):
        busy = Counter(p.agents[host] for p in pieces)
        assert max(busy.values()) - min(busy[r] for r in ranks) <= len(layout.hosts)


@pytest.mark.parametrize("hosts", LAYOUTS)
def test_owned_pieces_are_their_owners(hosts):
    layout = layout_of(hosts)
    sizes = [(37 * r) % 50 for r in range(len(hosts))]
    pieces = owned_pieces(layout, sizes, 10)
    found = sorted((p.lo, p.hi, p.owner) for p in pieces)
    for r, size in enumerate(sizes):
        mine = [i for lo, hi, owner in found if owner == r for i in range(lo, hi)]
        assert mine == list(range(sum(sizes[:r]), sum(sizes[:r]) + size))
    for p in pieces:
        assert p.agents[layout.host_of[p.owner]] == p.owner


def test_partner_is_the_next_one_alive():
    assert partner([4, 5, 6], 1, [True] * 3) == 5
    assert partner([4, 5, 6], 4, [True, False, True]) == 6
    assert partner([4, 5, 6], 2, [True, True, False]) == 4
    assert partner([4], 0, [False]) is None


OPS = [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX, premul_sum(0.3)]


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "bf16", "c8", "i4"])
@pytest.mark.parametrize("hosts", LAYOUTS)
def test_parts_joined_have_the_bits_of_one_reduction(hosts, dtype):
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bf16" else dtype)
    layout, n, rng = layout_of(hosts), 100, np.random.default_rng(len(hosts))
    parts = [(10 * rng.standard_normal(n)).astype(dtype) for _ in hosts]
    for op in OPS:
        if (dtype.kind == "i" and op is not ReduceOp.SUM) or (
            dtype.kind == "c" and op is ReduceOp.MAX
        ):
            continue
        if dtype.kind == "c" and op.factor:
            continue
        want = np.empty(n, dtype)
        make_reducer(op, dtype, len(hosts))([p.copy() for p in parts], want)
        for owner, in_place in itertools.product(range(len(hosts)), (False, True)):
            sums = Arithmetic(op, dtype, layout, n)
            mine = layout.host_of[owner]
            sent = {}
            for host in range(len(layout.hosts)):
                if host != mine:
                    out = np.empty(sums.unit_bytes(host, n), np.uint8)
                    sums.units(host, lambda r: parts[r], out)
                    sent[host] = out
            own = {r: parts[r].copy() for r in layout.hosts[mine]}
            out = own[owner] if in_place else np.empty(n, dtype)
            sums.join(mine, own.__getitem__, sent, out)
            assert out.tobytes() == want.tobytes(), (op, owner, in_place)
