"""Recordings read back, also in part."""

from __future__ import annotations

import json

import pytest

import disttrain as dt
import disttrain.distributed as dist
from disttrain.errors import ConfigError
from disttrain.record import rows
from disttrain.record.reader import read
from support.recordings import row, train

pytestmark = pytest.mark.simulated


def test_ranks_of_a_run(tmp_path):
    def body():
        dist.init_process_group()
        with dt.record(tmp_path):
            dt.ones(2).add(1)

    dist.simulate(body, 3)
    assert list(read(str(tmp_path)).streams) == [0, 1, 2]
    assert list(read(f"{tmp_path}:2").streams) == [2]
    assert list(read(f"{tmp_path}:0,2").streams) == [0, 2]
    with pytest.raises(ConfigError, match="rank 5 has recorded nothing"):
        read(f"{tmp_path}:5")


def test_what_is_no_recording_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no recording"):
        read(str(tmp_path / "nowhere"))
    (tmp_path / rows.RECORD).write_text("{")
    with pytest.raises(ConfigError, match="no recording"):
        read(str(tmp_path))
    (tmp_path / rows.RECORD).write_text(json.dumps({"version": 99}))
    with pytest.raises(ConfigError, match="version 99"):
        read(str(tmp_path))
    (tmp_path / rows.RECORD).write_text(json.dumps({"version": rows.VERSION, "world": 2}))
    with pytest.raises(ConfigError, match="no rank has recorded"):
        read(str(tmp_path))


def test_torn_texts_are_question_marks(tmp_path):
    train(tmp_path, steps=1)
    names = tmp_path / "rank_0.names"
    names.write_bytes(names.read_bytes()[:60])
    [found] = read(str(tmp_path)).streams.values()
    assert found[-1].name == "?"


def test_what_a_row_says():
    told = row(about="op=SUM call 12 of group world (ranks 0,1)", squares=9.0, shape="2 x int8[3]")
    assert (told.call, told.norm, told.dtype) == (("world", 12), 3.0, "int8")
    assert row().call is None
    assert json.dumps(told.as_dict())
