"""Groups of some ranks of a group: who is in them, in which order, under which name."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import context
from disttrain.comm.group import split
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.transports import sim
from disttrain.errors import CommError, ConfigError

pytestmark = pytest.mark.simulated


def on_ranks(n, fn):
    """``fn(group)`` on simulated ranks; the results by rank."""
    tasks = sim.run_cluster(lambda: fn(ProcessGroup(sim.connect())), sim.Cluster(n))[0].tasks
    assert [t.error for t in tasks] == [None] * n, [t.text for t in tasks]
    return [t.result for t in tasks]


def told(group):
    """(global ranks, own rank, name), and that the members meet."""
    if group is None:
        return None
    x = np.array([context.current().rank])
    group.all_reduce(x)
    assert x[0] == sum(group.ranks)
    return list(group.ranks), group.rank, group.name


def test_ranks_of_one_color_meet_in_the_order_of_their_keys():
    colors, keys = [1, 0, 1, None, 1, 0], [3, 0, 1, 0, 1, 0]

    def body(group):
        me = group.rank
        return told(split.by_color(group, colors[me], keys[me], None))

    found = on_ranks(6, body)
    assert found[3] is None
    assert [f and f[:2] for f in found] == [
        ([2, 4, 0], 2), ([1, 5], 0), ([2, 4, 0], 0), None, ([2, 4, 0], 1), ([1, 5], 1),
    ]  # fmt: skip
    assert found[0][2] == found[2][2] != found[1][2] == found[5][2]


def test_the_list_is_the_order_and_who_is_not_in_it_gets_none():
    def body(group):
        first, again = (told(split.of_ranks(group, [2, 0], None, False)) for _ in range(2))
        return first, again

    zero, one, two = on_ranks(3, body)
    assert one == (None, None)
    assert [f[:2] for f in zero] == [([2, 0], 1)] * 2 and two[0][:2] == ([2, 0], 0)
    assert zero[0][2] == two[0][2] != zero[1][2], "each has a name of its own"


def test_several_lists_at_once_are_several_groups():
    def body(group):
        mine = [0, 3] if group.rank in (0, 3) else [2, 1]
        return told(split.of_ranks(group, mine, None, False))

    found = on_ranks(4, body)
    assert [f[:2] for f in found] == [([0, 3], 0), ([2, 1], 1), ([2, 1], 0), ([0, 3], 1)]
    assert found[0][2] == found[3][2] != found[1][2] == found[2][2]


def test_lists_that_overlap_are_refused_on_all_ranks():
    def body(group):
        with pytest.raises((ConfigError, CommError)) as error:
            split.of_ranks(group, [0, 1] if group.rank == 0 else [1, 2], None, False)
        return str(error.value)

    found = on_ranks(3, body)
    assert all("new_group" in text or "differ" in text for text in found), found


def test_members_alone_meet_while_others_do_something_else():
    def body(group):
        made = None
        if group.rank != 1:
            made = [told(split.of_ranks(group, [2, 0], None, True)) for _ in range(2)]
        assert split.of_ranks(group, [(group.rank + 1) % 3], None, True) is None
        x = np.ones(1)
        group.all_reduce(x)
        return made

    zero, one, two = on_ranks(3, body)
    assert one is None and zero[0][:2] == ([2, 0], 1) and two[0][:2] == ([2, 0], 0)
    assert [f[2] for f in zero] == [f[2] for f in two] and len({f[2] for f in zero}) == 2


def test_a_group_inherits_that_it_is_strict_unless_told_otherwise():
    def body(group):
        group.strict = True
        kept = split.of_ranks(group, [0, 1], None, False).strict
        changed = split.of_ranks(group, [0, 1], False, False).strict
        return kept, changed

    assert on_ranks(2, body) == [(True, False)] * 2


def test_groups_of_groups_know_global_ranks():
    def body(group):
        outer = split.of_ranks(group, [3, 1, 2], None, False)
        if outer is None:
            return None
        return told(split.by_color(outer, outer.rank == 0, 0, None))

    found = on_ranks(4, body)
    assert [f and f[0] for f in found] == [None, [1, 2], [1, 2], [3]]
