"""What goes wrong, said to people: names, modules, ranks, and the same text on all."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.ddp.reducer.buckets import ParamMeta
from disttrain.distributed.ddp.reducer.messages import Messages, listed, silent_modules
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def net():
    return nn.ModuleDict(
        {"a": nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), "ab": nn.Linear(1, 1)}
    )


def messages():
    module = net()
    metas = [ParamMeta(n, tuple(p.shape), np.dtype("f4")) for n, p in module.named_parameters()]
    return Messages(module, metas, dist.group.WORLD)


def test_long_lists_are_cut():
    assert listed(list("abc")) == "a, b, c" and listed(list("abcdefgh")) == "a, b, c, d, e, f, g, h"
    assert listed(list("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"


@pytest.mark.parametrize(
    ("missing", "modules"),
    [
        (["ab"], ["ab (Linear)"]),
        (["a"], ["a (Sequential)"]),  # and not its parts
        (["a.0"], ["a.0 (Linear)"]),
        (["a", "ab"], ["the module itself (ModuleDict)"]),
        ([], []),
    ],
)
def test_the_outermost_modules_that_got_nothing(missing, modules):
    known = [n for n, _ in net().named_parameters()]
    lost = [n for n in known if any(n.startswith(f"{m}.") for m in missing)]
    assert silent_modules(net(), lost, known) == modules
    assert silent_modules(net(), ["ab.bias"], known) == []  # its weight has got one


def test_all_ranks_say_who_misses_what():
    def body():
        rank = dist.get_rank()
        return str(messages().missing_anywhere([[0, 1], [], [4]][rank]))

    first, *others = on_ranks(body, 3)
    assert others == [first, first]
    assert (
        "on rank 0 backward ended, but 2 of 6 parameters received no gradient: a.0.weight, a.0.b"
        in first
    )
    assert "on rank 2 backward ended, but 1 of 6" in first and "; rank 1 received all. " in first
    assert "find_unused_parameters=True" in first


def test_one_ranks_own_error_names_it():
    def body():
        told = messages()
        return (str(told.missing_here([5])), str(told.twice(2)), str(told.deviated(1, 3, 2)),
                str(told.missing_elsewhere([0])))  # fmt: skip

    here, twice, deviated, elsewhere = on_ranks(body)[1]
    assert here.startswith("DistributedDataParallel on rank 1: ") and "ab.bias" in here
    assert "'a.1.weight' received its gradient twice" in twice
    assert "'a.0.bias' received its gradient 3 times in this backward and 2 times" in deviated
    assert "without some gradients on rank 0, whose own error" in elsewhere


def test_replicas_that_drift_are_told_by_parameter_rank_and_time():
    def body(differ, step=12):
        hashes = [1, 2, 3, 4, 5, 6]
        if dist.get_rank() == 2:
            for i in differ:
                hashes[i] = 0
        return messages().drifted(hashes, step, 5)

    found = on_ranks(lambda: body([3, 4]), 3)
    assert len({f.partition(": ")[2] for f in found}) == 1
    assert "step 12, parameter 'a.1.bias' of rank 2 is not what rank 0 has (2 of 6" in found[0]
    assert "come apart after step 7" in found[0]
    assert "since the replicas were made" in on_ranks(lambda: body([0], 3), 3)[0]
    assert "are equal again" in on_ranks(lambda: body([]), 3)[0]


def test_ranks_of_a_smaller_group_are_told_by_their_numbers_in_the_job():
    def body():
        group = dist.new_group([0, 2])
        if dist.get_rank() == 1:
            return ""
        module = net()
        told = Messages(module, [], group)
        return str(told.weights_missing([True, False])), told.where

    first, _, third = on_ranks(body, 3)
    assert (
        first[0] == third[0] and "rank 0 gave its gradients a weight and rank 2 did not" in first[0]
    )
    assert third[1].endswith("on rank 2")
