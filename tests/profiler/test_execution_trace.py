"""Execution traces have PyTorch's form, and say which tensor and which memory was used."""

from __future__ import annotations

import json

import pytest

import disttrain as dt
from disttrain.errors import ConfigError
from disttrain.profiler import ExecutionTraceObserver, Profiler, schedule


def named(nodes, name):
    return next(n for n in nodes if n["name"] == name)


def test_what_a_trace_says(tmp_path):
    path = tmp_path / "trace.json"
    observer = ExecutionTraceObserver().register_callback(str(path))
    assert observer.is_registered and observer.get_output_file_path() == str(path)
    with observer:
        assert observer.is_running()
        x = dt.rand(2, 4)
        y = x.t().exp()
        dt.cat([y, y * 2.5], 1)
    content = json.loads(path.read_text())
    assert content["schema"].startswith("1.1.1") and content["finish_ts"] >= content["start_ts"]
    nodes = content["nodes"]
    assert [n["name"].rpartition("|")[2] for n in nodes[:2]] == ["process]", "thread]"]
    assert len({n["id"] for n in nodes}) == len(nodes)
    turned, exp = named(nodes, "aten::permute"), named(nodes, "aten::exp")
    given, made = turned["inputs"], turned["outputs"]
    assert given["shapes"][0] == [2, 4] and given["types"][0] == "Tensor(float)"
    assert made["strides"] == [[1, 4]] and made["values"][0][1] == given["values"][0][1]
    assert exp["inputs"]["values"][0] == made["values"][0]
    product = named(nodes, "aten::mul")
    assert product["inputs"]["values"][1] == 2.5 and product["inputs"]["types"][1] == "Double"
    assert {a["name"]: a["value"] for a in exp["attrs"]}["op_schema"].startswith("aten::exp(")
    assert exp["ctrl_deps"] == nodes[1]["id"]


def test_with_a_profiler(tmp_path):
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "trace.json"))
    plan = schedule(wait=1, warmup=0, active=1, repeat=1)
    with Profiler(schedule=plan, execution_trace_observer=observer) as prof:
        for name in ("sin", "cos", "tan"):
            getattr(dt, name)(dt.ones(2))
            prof.step()
    names = {n["name"] for n in json.loads((tmp_path / "trace.json").read_text())["nodes"]}
    assert "aten::cos" in names and not {"aten::sin", "aten::tan"} & names
    assert not observer.is_running()


def test_without_a_file_nothing_is_recorded(tmp_path):
    observer = ExecutionTraceObserver()
    observer.start()
    assert not observer.is_running() and not observer.is_registered
    observer.register_callback(str(tmp_path / "no" / "folder"))
    observer.start()
    with pytest.raises(ConfigError, match="folder"):
        observer.unregister_callback()
    observer.cleanup()
    assert not observer.is_registered
    made = ExecutionTraceObserver.build_execution_trace_obs_from_env()
    path = made.get_output_file_path()
    assert path is not None and path.endswith(".et.json")
    __import__("os").remove(path)
