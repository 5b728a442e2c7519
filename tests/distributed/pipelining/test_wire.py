"""Values between stages: forms travel when they change, failures are told."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.pipelining import wire
from disttrain.distributed.pipelining.wire import Lost, Receiver, Sender, tag_of
from disttrain.distributed.tensor import Shard, distribute_tensor
from disttrain.errors import ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def sent(values, take=lambda value: value):
    """What rank 1 takes of what rank 0 sends, and how many messages each value was."""

    def body():
        group, tag = dist.group.WORLD, tag_of(0, False, 3)
        if dist.get_rank() == 0:
            sender, counts = Sender(group, 1, tag), []
            for value in values:
                works = sender.send(value)
                counts.append(len(works))
                for work in works:
                    work.wait()
            return counts
        receiver = Receiver(group, 0, tag)
        receiver.start()
        receiver.start()  # begun already
        return [take(receiver.take()) for _ in values]

    counts, found = on_ranks(body)
    return found, counts


def test_tensors_in_any_nesting_arrive_with_their_types():
    value = (dt.ones(2, 3), {"a": [dt.arange(2), None, "x"], 1: (2.5, True)}, dt.tensor(1.0))
    (found,), _ = sent([value])
    assert found[0].tolist() == [[1.0] * 3] * 2 and type(found) is tuple
    assert found[1]["a"][0].dtype is dt.int64 and found[1]["a"][1:] == [None, "x"]
    assert found[1][1] == (2.5, True) and found[2].shape == ()


def test_what_needs_a_gradient_is_a_leaf_there():
    leaf = dt.ones(2, requires_grad=True)
    ((grown, plain),), _ = sent([(leaf * 2, dt.ones(1))])
    assert grown.requires_grad and grown.is_leaf and not plain.requires_grad


def test_the_form_travels_when_it_changes():
    _, counts = sent(
        [dt.ones(2), dt.zeros(2), dt.ones(3), dt.ones(3).double(), dt.ones(3).double()]
    )
    assert counts == [3, 2, 3, 3, 2]
    _, counts = sent([(dt.ones(1), 1), (dt.ones(1), 1), (dt.ones(1), True), (dt.ones(1), 2)])
    assert counts == [3, 2, 3, 3]  # 1 == True, and they are not the same
    _, counts = sent([dt.ones(1), dt.ones(1, requires_grad=True)])
    assert counts == [3, 3]


def test_a_set_that_has_changed_is_sent_again_and_what_arrives_is_the_programs_own():
    growing = [0]
    values = [(dt.ones(1), {"k": (1,)}), (dt.ones(1), {"k": (1,)})]

    def take(value):
        value[1]["k2"] = growing
        return sorted(value[1])

    found, counts = sent(values, take)
    assert counts == [3, 2] and found == [["k", "k2"], ["k", "k2"]]


def test_a_failure_is_told_and_the_next_value_comes_whole():
    def body():
        group, tag = dist.group.WORLD, tag_of(1, True, 0)
        if dist.get_rank() == 0:
            sender = Sender(group, 1, tag)
            works = sender.send(dt.ones(1)) + sender.send_nothing() + sender.send(dt.zeros(1))
            for work in works:
                work.wait()
            return len(works)
        receiver = Receiver(group, 0, tag)
        first = receiver.take().item()
        with pytest.raises(Lost):
            receiver.take()
        return first, receiver.take().item()

    assert on_ranks(body) == [7, (1.0, 0.0)]


def test_tags_are_of_one_stage_direction_and_micro_batch():
    tags = {tag_of(s, b, m) for s in (0, 1, 8191) for b in (False, True) for m in (0, 1, 65535)}
    assert len(tags) == 18 and min(tags) == 1 << 31 and max(tags) < wire._AGREEING
    for stage, micro in ((8192, 0), (0, 65536)):
        with pytest.raises(ConfigError, match="at most 8192 stages and 65536 micro-batches"):
            tag_of(stage, False, micro)


def test_sharded_tensors_are_not_handed_on():
    def body():
        t = distribute_tensor(dt.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
        with pytest.raises(ConfigError, match=r"hands on a DTensor of shape \[4\]"):
            Sender(dist.group.WORLD, 1 - dist.get_rank(), 1).send([t])

    on_ranks(body)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_agree(size):
    def body():
        group, rank = dist.group.WORLD, dist.get_rank()
        last = group.size - 1
        return (
            wire.highest(group, rank * 10 if rank != 1 else -5),
            wire.told_by(group, ["of", rank] if rank == last else None, last),
            wire.everyones(group, {"r": rank}),
        )

    want = (max([0, 20, 30][: max(size - 1, 1)] if size > 2 else [0]), ["of", size - 1],
            [{"r": r} for r in range(size)])  # fmt: skip
    assert on_ranks(body, size) == [want] * size
