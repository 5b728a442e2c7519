"""JSON lines: whole lines, and after SIGKILL at most the start of one more, which nobody reads."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
import pytest

from disttrain.errors import ConfigError, SerializationError
from disttrain.metrics import JsonLines, read_jsonl


def test_each_record_is_there_before_close(tmp_path):
    path = tmp_path / "a" / "m.jsonl"
    log = JsonLines(path)
    log.write({"step": 1, "loss": 0.5})
    assert path.read_text() == '{"step": 1, "loss": 0.5}\n'
    log.write({"text": "zwei\nlines ü"})
    assert read_jsonl(path) == [{"step": 1, "loss": 0.5}, {"text": "zwei\nlines ü"}]
    log.close()
    log.close()


def test_values_beyond_json(tmp_path):
    with JsonLines(tmp_path / "m") as log:
        values = [np.float32(0.5), np.int64(3), float("nan"), float("inf"), -np.float64("inf")]
        log.write({"v": values, "d": {1: (1, None, True)}})
    assert read_jsonl(tmp_path / "m") == [
        {"v": [0.5, 3, "nan", "inf", "-inf"], "d": {"1": [1, None, True]}}
    ]


@pytest.mark.parametrize("tail", ['{"step": 2, "lo', "x" * 10000])
@pytest.mark.parametrize("head", ["", '{"step": 1}\n'])
def test_half_line_is_cut_off(tmp_path, head, tail):
    path = tmp_path / "m"
    path.write_text(head + tail)
    assert len(read_jsonl(path)) == len(head.splitlines())
    with JsonLines(path) as log:
        log.write({"step": 9})
    assert path.read_text() == head + '{"step": 9}\n'


def test_reading_garbage_names_the_line(tmp_path):
    (tmp_path / "m").write_text('{"a": 1}\nnot json\n')
    with pytest.raises(SerializationError, match=r"m:2: not a JSON line"):
        read_jsonl(tmp_path / "m")


def test_reading_an_empty_file(tmp_path):
    (tmp_path / "m").write_text("")
    assert read_jsonl(tmp_path / "m") == []


def test_unwritable_path_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        JsonLines(tmp_path / "file" / "m.jsonl")


def test_killed_writer_leaves_whole_lines_and_perhaps_the_start_of_one(tmp_path):
    path = tmp_path / "m"
    child = os.fork()
    if child == 0:
        log = JsonLines(path)
        step = 0
        while True:
            step += 1
            log.write({"step": step, "pad": "x" * 3000})
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (not path.exists() or path.stat().st_size < 100_000):
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    steps = [record["step"] for record in read_jsonl(path)]
    assert len(steps) > 30
    assert steps == list(range(1, len(steps) + 1))
    torn = path.read_bytes().rpartition(b"\n")[2]
    assert json.dumps({"step": len(steps) + 1, "pad": "x" * 3000}).encode().startswith(torn)
    with JsonLines(path) as log:
        log.write({"step": len(steps) + 1})
    assert [record["step"] for record in read_jsonl(path)] == [*steps, len(steps) + 1]
