"""Profiles in steps: which are recorded, what is done with each record."""

from __future__ import annotations

import gzip
import json

import pytest

import disttrain as dt
from disttrain import profiler
from disttrain.profiler import Profiler, ProfilerAction, ProfilerActivity, schedule


def work(k):
    (dt.ones(2, 3) * k).exp()


def test_a_schedule_says_which_steps_are_recorded():
    seen = []

    def ready(prof):
        seen.append([e.name for e in prof.events() if e.name.startswith("ProfilerStep")])

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with Profiler(schedule=plan, on_trace_ready=ready, activities=[ProfilerActivity.CPU]) as prof:
        for k in range(12):
            work(k)
            prof.step()
    assert seen == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]
    assert prof.step_num == 12 and not dt.context.thread.stack


def test_a_record_that_the_end_cuts_off_is_ready_then():
    seen = []
    prof = Profiler(schedule=schedule(wait=0, warmup=1, active=5), on_trace_ready=seen.append)
    prof.start()
    for k in range(3):
        work(k)
        prof.step()
    prof.stop()
    prof.stop()
    assert seen == [prof] and sum(e.name == "aten::exp" for e in prof.events()) == 2
    with Profiler(schedule=lambda step: ProfilerAction.NONE, on_trace_ready=seen.append) as none:
        work(1)
        none.step()
    assert len(seen) == 1 and none.events() == []


def test_cycles_may_be_kept_together():
    plan = schedule(wait=0, warmup=0, active=1)
    with Profiler(schedule=plan, acc_events=True) as prof:
        for k in range(3):
            work(k)
            prof.step()
    names = [e.name for e in prof.events() if e.name.startswith("ProfilerStep")]
    assert names == [f"ProfilerStep#{k}" for k in range(3)]


@pytest.mark.parametrize("zipped", [False, True])
def test_traces_for_tensorboard(zipped, tmp_path):
    handler = profiler.tensorboard_trace_handler(tmp_path / "log", "worker0", use_gzip=zipped)
    with Profiler(on_trace_ready=handler) as prof:
        prof.add_metadata("run", "first")
        work(1)
        prof.step()
    (path,) = (tmp_path / "log").iterdir()
    assert path.name.startswith("worker0.")
    assert path.name.endswith(".pt.trace.json.gz" if zipped else ".pt.trace.json")
    data = gzip.decompress(path.read_bytes()) if zipped else path.read_bytes()
    content = json.loads(data)
    assert content["run"] == "first" and content["schemaVersion"] == 1
    assert "aten::exp" in {row["name"] for row in content["traceEvents"]}
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="Can't create directory"):
        profiler.tensorboard_trace_handler(str(tmp_path / "file"))(prof)


def test_recording_can_be_switched_off_and_on():
    with Profiler(custom_trace_id_callback=lambda: "x") as prof:
        work(1)
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        dt.ones(2).sin()
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        dt.ones(2).cos()
    names = {e.name for e in prof.events()}
    assert "aten::cos" in names and "aten::sin" not in names and prof.get_trace_id() == "x"
    assert profiler.kineto_available() and profiler.supported_activities() == {ProfilerActivity.CPU}


def test_memory_over_time(tmp_path):
    with Profiler(profile_memory=True) as prof:
        x = dt.ones(1000) + 1
        del x
    path = tmp_path / "memory.json"
    prof.export_memory_timeline(str(path))
    times, sizes = json.loads(path.read_text())
    assert times == sorted(times) and max(sizes) >= 4000 and sizes[-1] == 0
    with pytest.raises(RuntimeError, match=r"\.json"):
        prof.export_memory_timeline("memory.html")
