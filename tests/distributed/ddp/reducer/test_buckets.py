"""The bucket plan is a pure function."""

from __future__ import annotations

import numpy as np

from disttrain.distributed.ddp.reducer.buckets import ALIGN, ParamMeta, last_first, plan_buckets

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def metas(*sizes: int, dtype: np.dtype = F32) -> list[ParamMeta]:
    return [ParamMeta(f"p{i}", (n,), dtype) for i, n in enumerate(sizes)]


def members(plan) -> list[list[int]]:
    return [[s.param for s in b.slots] for b in plan]


def plan(params, *limits: int, order=None, align: int = ALIGN):
    return plan_buckets(params, last_first(params) if order is None else order, limits, align)


def test_last_defined_parameters_come_first() -> None:
    assert members(plan(metas(4, 4, 4), 1 << 20)) == [[2, 1, 0]]


def test_a_bucket_closes_when_it_has_its_cap() -> None:
    found = plan(metas(100, 100, 100, 100), 400, 800)
    assert members(found) == [[3], [2, 1], [0]]


def test_types_do_not_mix() -> None:
    found = plan(metas(4, 4) + [ParamMeta("d", (4,), F64)], 1 << 20)
    assert members(found) == [[2], [1, 0]]
    assert [b.dtype for b in found] == [F64, F32]


def test_every_parameter_has_one_aligned_place() -> None:
    sizes = (1, 17, 300, 5, 64)
    found = plan(metas(*sizes), 200, 1000)
    places = {s.param: s for b in found for s in b.slots}
    assert sorted(places) == list(range(len(sizes)))
    for b in found:
        end = 0
        for s in b.slots:
            assert s.offset * 4 % ALIGN == 0 and s.offset >= end and s.numel == sizes[s.param]
            end = s.offset + s.numel
        assert end <= b.numel


def test_empty_parameters_are_kept() -> None:
    assert members(plan(metas(0, 3), 100)) == [[1, 0]]


def test_buckets_follow_the_order_in_which_gradients_come() -> None:
    params = metas(100, 100, 100) + [ParamMeta("d", (4,), F64)]
    assert members(plan(params, 400, order=[1, 3, 0, 2])) == [[1], [3], [0], [2]]
    assert members(plan(params, 800, order=[3, 1, 2, 0])) == [[3], [1, 2], [0]]


def test_without_alignment_gradients_follow_each_other() -> None:
    (bucket,) = plan(metas(3, 5), 100, align=1)
    assert [(s.param, s.offset) for s in bucket.slots] == [(1, 0), (0, 5)] and bucket.numel == 8
