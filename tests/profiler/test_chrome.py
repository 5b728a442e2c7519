"""Traces: memory, arrows from forward to backward and from rank to rank, several ranks in one."""

from __future__ import annotations

import json

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.errors import ConfigError
from disttrain.profiler import merge_chrome_traces, profile, record_function


def rows_of(prof, path):
    prof.export_chrome_trace(str(path))
    return json.loads(path.read_text())["traceEvents"]


def test_arrows_lead_to_what_backward_runs_for_an_operation(tmp_path):
    x = dt.rand(3, 4, requires_grad=True)
    with profile() as prof:
        with record_function("forward"):
            loss = (x.exp() @ dt.rand(4, 2)).sigmoid().sum()
        loss.backward()
    rows = rows_of(prof, tmp_path / "trace.json")
    starts = {r["id"]: r for r in rows if r["ph"] == "s"}
    ends = {r["id"]: r for r in rows if r["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) >= 3
    bars = [r for r in rows if r["ph"] == "X"]

    def at(row):
        return next(b for b in bars if b["ts"] == row["ts"] and b["tid"] == row["tid"])

    pairs = {at(starts[i])["name"]: at(ends[i])["name"] for i in starts}
    assert pairs["aten::matmul"] == "aten::permute" or "matmul" in pairs["aten::matmul"]
    assert {"aten::exp", "aten::sigmoid", "aten::matmul"} <= pairs.keys()
    assert all(starts[i]["ts"] <= ends[i]["ts"] and ends[i]["bp"] == "e" for i in starts)
    assert {b["cat"] for b in bars} == {"cpu_op", "user_annotation"}


def test_memory_is_taken_and_given_back(tmp_path):
    with profile(profile_memory=True) as prof:
        x = dt.ones(1000)
        y = x + 1
        view = y[:10]
        z = y * 2
        del y, view, z
    rows = rows_of(prof, tmp_path / "trace.json")
    seen = [r["args"] for r in rows if r["name"] == "[memory]"]
    assert [a["Bytes"] for a in seen].count(4000) == 2 and seen[-1]["Total Allocated"] == 0
    assert max(a["Total Allocated"] for a in seen) == 8000
    assert any(r["ph"] == "C" for r in rows)
    add = next(e for e in prof.key_averages() if e.name == "aten::add")
    assert add.cpu_memory_usage == add.self_cpu_memory_usage == 4000
    assert "CPU Mem" in prof.key_averages().table(sort_by="self_cpu_memory_usage")


def test_traces_of_ranks_are_joined_by_arrows(tmp_path):
    def body():
        dist.init_process_group()
        me, x = dist.get_rank(), dt.ones(4)
        with profile() as prof:
            dist.all_reduce(x)
            send = dist.isend(x, (me + 1) % 2) if me == 0 else None
            if me:
                dist.recv(x, 0)
            else:
                send.wait()
            dist.barrier()
        prof.export_chrome_trace(str(tmp_path / f"rank{me}.json"))
        dist.destroy_process_group()

    dist.simulate(body, 2)
    paths = [tmp_path / f"rank{k}.json" for k in range(2)]
    first = json.loads(paths[0].read_text())
    assert first["distributedInfo"]["world_size"] == 2
    bar = next(r for r in first["traceEvents"] if r["name"] == "gloo:all_reduce")
    assert bar["args"]["Process Group Ranks"] == [0, 1] and bar["args"]["Group size"] == 2
    merge_chrome_traces(paths, tmp_path / "all.json.gz")
    merge_chrome_traces(paths, tmp_path / "all.json")
    rows = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    assert {r["pid"] for r in rows} == {0, 1}
    arrows = [(r["id"], r["ph"], r["pid"]) for r in rows if r.get("cat") == "ranks"]
    for number in {i for i, _, _ in arrows}:
        ends = sorted((ph, pid) for i, ph, pid in arrows if i == number)
        assert ends == [("f", 1), ("s", 0)]
    assert len(arrows) == 6
    names = {(r["pid"], r["args"]["name"]) for r in rows if r["name"] == "process_name"}
    assert names == {(0, "rank 0"), (1, "rank 1")}
    with pytest.raises(ConfigError):
        merge_chrome_traces([], tmp_path / "none.json")
