"""The bucket plan is a pure function."""

from __future__ import annotations

import numpy as np

from disttrain.distributed.ddp.buckets import ALIGN, ParamMeta, plan_buckets

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def metas(*sizes: int, dtype: np.dtype = F32) -> list[ParamMeta]:
    return [ParamMeta(f"p{i}", (n,), dtype) for i, n in enumerate(sizes)]


def members(plan) -> list[list[int]]:
    return [[s.param for s in b.slots] for b in plan]


def test_last_defined_parameters_come_first() -> None:
    assert members(plan_buckets(metas(4, 4, 4), 1 << 20, 1 << 20)) == [[2, 1, 0]]


def test_a_bucket_closes_when_it_has_its_cap() -> None:
    plan = plan_buckets(metas(100, 100, 100, 100), cap_bytes=800, first_cap_bytes=400)
    assert members(plan) == [[3], [2, 1], [0]]


def test_types_do_not_mix() -> None:
    plan = plan_buckets(metas(4, 4) + [ParamMeta("d", (4,), F64)], 1 << 20, 1 << 20)
    assert members(plan) == [[2], [1, 0]]
    assert [b.dtype for b in plan] == [F64, F32]


def test_every_parameter_has_one_aligned_place() -> None:
    sizes = (1, 17, 300, 5, 64)
    plan = plan_buckets(metas(*sizes), 1000, 200)
    places = {s.param: s for b in plan for s in b.slots}
    assert sorted(places) == list(range(len(sizes)))
    for b in plan:
        end = 0
        for s in b.slots:
            assert s.offset * 4 % ALIGN == 0 and s.offset >= end and s.numel == sizes[s.param]
            end = s.offset + s.numel
        assert end <= b.numel


def test_empty_parameters_are_kept() -> None:
    assert members(plan_buckets(metas(0, 3), 100, 100)) == [[1, 0]]
