"""The profiler: operations and collectives as events, and nothing left when the block is over."""

from __future__ import annotations

import json
import threading

import pytest

import disttrain as dt
from disttrain import context, profiler
from disttrain import distributed as dist
from disttrain.errors import ConfigError


def names(prof) -> list[str]:
    return [e.name for e in prof.function_events]


def test_operations_are_events_with_their_shapes():
    x = dt.ones(3, 4, requires_grad=True)
    with profiler.profile(record_shapes=True) as prof:
        with profiler.record_function("step"):
            (x @ dt.ones(4, 2)).sum().backward()
    first = next(e for e in prof.events() if "matmul" in e.name)
    assert first.input_shapes == [(3, 4), (4, 2)] and first.count == 1 and not first.is_async
    whole = next(e for e in prof.events() if e.name == "step")
    assert whole.cpu_time >= first.cpu_time > 0 and whole.start <= first.start
    assert x.grad.tolist() == [[2.0] * 4] * 3
    count = len(prof.events())
    x.exp()
    assert len(prof.events()) == count and not context.thread.stack


def test_averages_and_trace(tmp_path):
    x = dt.ones(5)
    with profiler.profile(record_shapes=True) as prof:
        for _ in range(3):
            x.exp()
        x[:2].exp()
    (row,) = [e for e in prof.key_averages() if e.name == "aten::exp"]
    assert row.count == 4 and row.cpu_time_total == pytest.approx(4 * row.cpu_time)
    shapes = {str(e.input_shapes) for e in prof.key_averages(True) if e.name == "aten::exp"}
    assert shapes == {"[(5,)]", "[(2,)]"}
    table = prof.key_averages().table(row_limit=1).splitlines()
    assert table[0].split() == ["Name", "CPU", "total", "CPU", "mean", "Calls"] and len(table) == 2
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [r["name"] for r in rows] == names(prof)
    assert all(r["ph"] == "X" and r["tid"] == threading.get_ident() for r in rows)


def test_nothing_is_recorded_when_it_is_not_enabled():
    with profiler.profile(False) as prof:
        dt.ones(2).exp()
    assert prof.events() == []
    with pytest.raises(ConfigError, match="use_cuda=True given"):
        profiler.profile(use_cuda=True)


def test_steps():
    seen = []
    with profiler.Profiler(
        activities=[profiler.ProfilerActivity.CPU], on_trace_ready=seen.append
    ) as prof:
        for _ in range(2):
            dt.ones(2).exp()
            prof.step()
    assert seen == [prof]
    steps = [e for e in prof.events() if e.name.startswith("ProfilerStep")]
    assert [e.name for e in steps] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert steps[1].start >= steps[0].start + steps[0].cpu_time
    with pytest.raises(ConfigError, match=r"there is ProfilerActivity\.CPU"):
        profiler.Profiler(activities=["cuda"])


def test_collectives_are_events():
    def body():
        dist.init_process_group()
        me, n = dist.get_rank(), dist.get_world_size()
        x, out = dt.ones(6), dt.zeros(6)
        with profiler.profile(record_shapes=True) as prof:
            dist.all_reduce(x.reshape(2, 3))
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            dist.all_reduce_coalesced([x[:2], dt.ones(3), dt.ones(2) * 1j])
            pair = dist.new_group([0, 1])
            dist.broadcast(x, 0, group=pair)
            dist.all_gather([dt.zeros(6) for _ in range(n)], x)
            send = dist.isend(x, (me + 1) % n)
            dist.recv(out, (me - 1) % n)
            send.wait()
            dist.barrier()
        dist.all_reduce(x)
        group = dist.group.WORLD
        assert not {"all_reduce", "split", "new_group"} & set(vars(group))
        dist.destroy_process_group()
        found = [e for e in prof.events() if e.name.startswith("gloo:")]
        assert all(e.is_async and e.cpu_time >= 0 for e in found)
        return [(e.name, e.input_shapes) for e in found if e.name[5:] not in ("send", "recv")]

    for events in dist.simulate(body, 2).results:
        assert events == [
            ("gloo:all_reduce", [(2, 3)]),
            ("gloo:all_reduce", [(6,)]),
            ("gloo:all_reduce", [(2,), (3,), (2, 2)]),
            ("gloo:broadcast", [(6,)]),
            ("gloo:all_gather", [(6,)]),
            ("gloo:barrier", []),
        ]


def test_collectives_have_the_names_that_a_program_gives_them():
    def body():
        dist.init_process_group()
        x = dt.ones(2)
        with profiler.profile() as prof:
            with dist.record_comm("outer"):
                dist.all_reduce(x)
                with pytest.raises(ConfigError), dist.record_comm("inner"):
                    dist.barrier()
                    raise ConfigError("of the program")
                dist.broadcast(x, 0)
            dist.barrier()
        dist.destroy_process_group()
        return names(prof)

    for found in dist.simulate(body, 2).results:
        assert [n for n in found if n in ("outer", "inner") or n.startswith("gloo:")] == [
            *("outer", "inner", "outer", "gloo:barrier")
        ]
