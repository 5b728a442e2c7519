"""The trace that the launcher writes: its events, what it leaves out, files that were cut."""

from __future__ import annotations

import json
import os

import pytest

from disttrain.watch import trace
from disttrain.watch.reading import Operation
from disttrain.watch.trace import Trace, events


def _op(begun: int, ended: int, seq: int = 1, label: str = "") -> Operation:
    return Operation(
        seq, begun, ended, seq, "all_reduce", 8, "float32", "world", -1, "all_reduce", label
    )


def test_events_have_rows_of_their_own_while_they_overlap(tmp_path):
    path = str(tmp_path / "trace.json")
    writer = Trace(path, [4, 5], "here", 1000)
    writer.add(4, [_op(2000, 9000), _op(3000, 5000, 2, "bucket 1"), _op(6000, 7000, 3)])
    writer.add(5, [_op(2000, -4000)], lost=7)
    writer.step(4, 1, 9500)
    writer.step(4, 1, 9500)
    writer.close()
    with open(path) as file:
        whole = json.load(file)
    assert whole == list(events(path))
    bars = [e for e in whole if e["ph"] == "X"]
    assert [(e["pid"], e["tid"], e["ts"], e["dur"]) for e in bars] == [
        (4, 0, 1.0, 7.0), (4, 1, 2.0, 2.0), (4, 1, 5.0, 1.0), (5, 0, 1.0, 2.0),
    ]  # fmt: skip
    assert bars[1]["args"]["call"] == "bucket 1: all_reduce"
    marks = [e["name"] for e in whole if e["ph"] == "i"]
    assert marks == ["7 operations were too many to be kept", "step 1"]
    assert [e["args"]["name"] for e in whole if e["name"] == "process_name"] == [
        "rank 4 on here", "rank 5 on here",
    ]  # fmt: skip


def test_a_long_run_stays_in_sight_and_fills_no_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "WHOLE", 4000)
    monkeypatch.setattr(trace, "MORE", 4000)
    writer, second = Trace(str(tmp_path / "t"), [0], "here", 0), 10**9
    kept = []
    for i in range(3000):
        if writer.keeps(i * second):
            writer.add(0, [_op(i * second, i * second + 1000, i)])
            kept.append(i)
    writer.close()
    assert kept[:10] == list(range(10)) and kept[-1] > 1900 and len(kept) < 100
    assert os.path.getsize(tmp_path / "t") < 20_000


def test_a_full_disk_ends_the_trace_and_a_cut_file_can_be_read(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    writer = Trace(path, [0], "here", 0)
    writer.add(0, [_op(1, 2)])

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(trace.os, "write", full)
        writer.add(0, [_op(3, 4)])
    assert writer.problem == f"{path}: No space left on device; the trace ends here"
    assert not writer.keeps(5)
    writer.close()
    assert [e["ts"] for e in events(path) if e["ph"] == "X"] == [0.001]
    with pytest.raises(ValueError, match=r"delimiter|Expecting"), open(path) as file:
        json.load(file)
