"""Events: what ran inside of what, added up by name, shapes and stacks; stacks, operations."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.profiler import Event, profile, record_function
from disttrain.profiler.events import averages, nest


def test_what_ran_inside_of_what():
    outer, inner = Event("outer", 0.0, 10.0), Event("inner", 2.0, 3.0)
    other, later = Event("inner", 1.0, 2.0, thread=1), Event("later", 11.0, 1.0)
    events = [inner, outer, later, other, Event("async", 3.0, 1.0, is_async=True)]
    nest(events)
    assert inner.cpu_parent is outer and other.cpu_parent is None and later.cpu_parent is None
    assert outer.self_cpu_time_total == 7.0 and outer.cpu_children == [inner]
    rows = {e.key: e for e in averages(events)}
    assert rows["inner"].count == 2 and rows["inner"].cpu_time_total == 5.0
    assert rows["outer"].self_cpu_time_total == 7.0
    assert averages(events).total_average().self_cpu_time_total == pytest.approx(14.0)
    table = averages(events).table(header="all", top_level_events_only=True, row_limit=2)
    assert table.splitlines()[0] == "all" and len(table.splitlines()) == 4


def test_stacks_and_operations(tmp_path):
    def inner():
        return dt.ones(3, 4) @ dt.ones(4, 5)

    with profile(with_stack=True, with_flops=True, record_shapes=True) as prof:
        with record_function("mine"):
            inner()
            dt.nn.functional.conv2d(dt.ones(1, 2, 5, 5), dt.ones(3, 2, 3, 3))
    product = next(e for e in prof.events() if e.name == "aten::matmul")
    assert product.flops == 2 * 3 * 4 * 5 and "inner" in product.stack[0]
    assert all("disttrain/profiler" not in line for line in product.stack[:2])
    assert next(e for e in prof.events() if e.name == "aten::conv").flops == 2 * 27 * 18
    prof.export_stacks(str(tmp_path / "stacks.txt"))
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert all(line.rpartition(" ")[2].isdigit() for line in lines)
    rows = prof.key_averages(group_by_stack_n=1, group_by_input_shape=True)
    assert any(r.stack and r.input_shapes for r in rows)
    assert "Total FLOPs" in rows.table(max_name_column_width=8) and "aten:..." in prof.table(
        max_name_column_width=8
    )
    assert prof.self_cpu_time_total > 0 and prof.total_average().count == len(prof.events())
