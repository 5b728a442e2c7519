"""Which folders are runs, and what is read of them while they grow, are damaged, or too large."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from disttrain.board import runs
from disttrain.board.runs import Run, find_runs, read_records, read_report, shown
from disttrain.errors import ConfigError


def metrics(folder: Path, text: str = '{"step": 1}\n', age: float = 0.0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "metrics.jsonl"
    path.write_text(text)
    moment = time.time() - age
    os.utime(path, (moment, moment))
    return path


def test_the_latest_run_comes_first_and_old_ones_are_not_fresh(tmp_path):
    metrics(tmp_path / "old", age=3600.0)
    metrics(tmp_path / "new")
    metrics(tmp_path / "middle", age=60.0)
    found = find_runs(tmp_path)
    assert [run.name for run in found] == ["new", "middle", "old"]
    assert [run.is_fresh for run in found] == [True, False, False]
    assert found[0].about() == {
        "name": "new", "changed": found[0].changed, "fresh": True,
        "metrics": True, "report": False, "ranks": False,
    }  # fmt: skip


def test_folders_are_looked_into_to_a_depth_and_attempts_belong_to_their_run(tmp_path, monkeypatch):
    metrics(tmp_path)
    metrics(tmp_path / "a/b/c/d")
    metrics(tmp_path / "a/b/c/d/e")  # too deep
    metrics(tmp_path / "job/attempt_0")
    metrics(tmp_path / "job/node_1")
    assert {run.name for run in find_runs(tmp_path)} == {".", "a/b/c/d"}
    monkeypatch.setattr(runs, "_MOST_RUNS", 1)
    assert len(find_runs(tmp_path)) == 1
    with pytest.raises(ConfigError, match="no such directory; give the one where runs are kept"):
        find_runs(tmp_path / "metrics.jsonl")


def test_a_report_alone_makes_a_run_of_what_is_a_mapping_that_browsers_know(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    path.write_text('{"exitcode": 3}')
    (run,) = find_runs(tmp_path)
    assert (run.has_report, run.has_metrics) == (True, False)
    assert read_report(run) == {"exitcode": 3} and read_records(run) == ([], 0)
    for wrong in ("[1]", "", '{"a": NaN}', '{"a": 1e999}', "[" * 100_000):
        path.write_text(wrong)
        assert read_report(run) is None
    path.write_text('{"exitcode": 3}')
    monkeypatch.setattr(runs, "_REPORT_BYTES", path.stat().st_size - 1)
    assert read_report(run) is None
    path.unlink()
    assert read_report(run) is None and find_runs(tmp_path) == []


def test_of_large_files_the_end_is_read(tmp_path, monkeypatch):
    path = metrics(tmp_path, "".join(f'{{"step": {i}}}\n' for i in range(1000, 2000)))
    (run,) = find_runs(tmp_path)
    size = path.stat().st_size
    monkeypatch.setattr(runs, "_MOST_BYTES", 40)  # a line has 15: what is cut is no record
    assert read_records(run) == ([{"step": 1998}, {"step": 1999}], size)


def test_a_file_that_is_gone_leaves_what_was_read(tmp_path):
    path = metrics(tmp_path)
    (run,) = find_runs(tmp_path)
    path.unlink()
    assert read_records(run, 12) == ([], 12)
    gone = Run("x", tmp_path, 0.0, False, False, ())
    assert read_records(gone, 12) == ([], 0) and read_report(gone) is None


def test_numbers_that_json_lacks_are_told_as_words(tmp_path):
    metrics(tmp_path, '{"a": NaN, "b": -Infinity}\n' + json.dumps({"c": 1.5}) + "\n")
    (run,) = find_runs(tmp_path)
    assert read_records(run)[0] == [{"a": "nan", "b": "-infinity"}, {"c": 1.5}]


def test_a_path_that_is_none_in_utf8_is_text_all_the_same():
    assert shown(Path(os.fsdecode(b"caf\xc3\xa9/\xff"))) == "café/\\xff"


def test_metrics_are_read_as_they_grow_and_anew_when_begun_anew(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\nno json\n[1]\n{"step": 2')
    (run,) = find_runs(tmp_path)
    records, at = read_records(run)
    assert (run.name, records) == (".", [{"step": 1}])
    with open(path, "ab") as file:
        file.write(b'0}\n{"st')
    records, later = read_records(run, at)
    assert records == [{"step": 20}]
    path.write_bytes(b'{"step": 5}\n')
    assert read_records(run, later) == ([{"step": 5}], 12)


def test_links_and_hidden_folders_are_no_runs(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "metrics.jsonl").write_text('{"step": 1}\n')
    inside = tmp_path / "inside"
    (inside / ".hidden").mkdir(parents=True)
    (inside / ".hidden" / "metrics.jsonl").write_text("")
    (inside / "linked").symlink_to(outside)
    (inside / "own").mkdir()
    (inside / "own" / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
    assert find_runs(inside) == []
