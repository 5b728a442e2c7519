"""Groups of some ranks: order, division, ranks of the world and of the group."""

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.errors import ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

N = 4


def test_groups_of_some_ranks_are_in_order_unless_asked_otherwise():
    def body():
        me = dist.get_rank()
        plain = dist.new_group([3, 1], group_desc="pair")
        given = dist.new_group([3, 1], sort_ranks=False)
        if me in (1, 3):
            assert plain.group_desc == "pair" and plain.group_name == plain.name
            assert dist.get_process_group_ranks(plain) == [1, 3]
            assert dist.get_process_group_ranks(given) == [3, 1]
            assert dist.get_global_rank(given, 0) == 3 and dist.get_group_rank(given, 1) == 1
        else:
            assert plain is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(plain) == -1
        mine, every = dist.new_subgroups(2)
        assert len(every) == 2 and mine.ranks == [me & 2, (me & 2) + 1]
        mine, every = dist.new_subgroups_by_enumeration([[0, 2], [1]])
        assert (None if mine is None else mine.ranks) == ([0, 2], [1], [0, 2], None)[me]
        half = dist.split_group(split_ranks=[[0, 1], [3, 2]])
        assert half.ranks == [me & 2, (me & 2) + 1]
        one = dist.split_group(half, [[1]], timeout=9.0)
        assert (one is None) == (me % 2 == 0)
        x = dt.ones(1)
        dist.all_reduce(x, group=half)
        return x.item(), dist.get_pg_count()

    assert [v for v, _ in on_ranks(body, N)] == [2.0] * N


def test_what_cannot_be_divided_is_refused():
    def body():
        for wrong in ([], [[]], [[0, 1, 2]], [[0, 0]], [[5]]):
            with pytest.raises(ConfigError):
                dist.split_group(None, wrong)
        with pytest.raises(ValueError, match="appeared in both"):
            dist.new_subgroups_by_enumeration([[0, 1], [1]])
        for size in (0, 3, 4):
            with pytest.raises(ValueError, match="group_size"):
                dist.new_subgroups(size)
        with pytest.raises(ValueError, match="not part of group"):
            dist.get_group_rank(dist.group.WORLD, 2)

    on_ranks(body)


def test_ranks_of_the_world_and_of_the_group():
    def body():
        me = dist.get_rank()
        pair = dist.new_group([1, 2])
        if me == 0:
            return
        x = dt.full((1,), float(me))
        dist.broadcast(x, group_src=1, group=pair)
        assert x.item() == 2.0
        got = [None, None]
        dist.gather_object(me, got if me == 2 else None, group=pair, group_dst=1)
        assert got == ([1, 2] if me == 2 else [None, None])
        out = [None]
        dist.scatter_object_list(out, ["a", "b"] if me == 1 else None, group=pair, group_src=0)
        assert out == ["ab"[me - 1]]
        if me == 1:
            dist.send_object_list(["x"], group=pair, group_dst=1, use_batch=True)
        else:
            assert dist.recv_object_list(out, group=pair, group_src=0) == 1 and out == ["x"]
        with pytest.raises(ValueError, match="Can't specify both"):
            dist.broadcast(x, src=1, group_src=0, group=pair)
        with pytest.raises(ValueError, match="Must specify"):
            dist.broadcast(x, group=pair)
        with pytest.raises(ValueError, match="same as the rank"):
            dist.send(x, me)
        message = dist.P2POp(dist.isend, x, group=pair, group_peer=2 - me)
        assert message.peer == 3 - me and "group_dst" in repr(message)
        many = ["?"] * 3
        dist.all_gather_object(many, me, group=pair)
        assert many == [1, 2, "?"]

    on_ranks(body, 3)


def test_outsiders_are_warned_and_do_nothing():
    def body():
        group = dist.new_group([0])
        if dist.get_rank() == 0:
            return
        x = dt.ones(1)
        with pytest.warns(UserWarning, match="Running isend on global rank 1"):
            assert dist.isend(x, 0, group) is None
        with pytest.warns(UserWarning, match="Running recv on"):
            assert dist.recv(x, 0, group) == -1

    on_ranks(body)
