"""Chakra traces: read again by a reader of protobuf's wire format that knows the schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from disttrain.comm.transports.sim.chakra import (
    COLL,
    COMP,
    RECV,
    SEND,
    VERBS,
    VERSION,
    Node,
    of_timeline,
    verb_of,
    write,
    write_timeline,
)
from disttrain.comm.transports.sim.timeline import Timeline
from disttrain.errors import ConfigError
from support.chakra import read


def simulated() -> Timeline:
    timeline = Timeline(2)
    for rank in (0, 1):
        timeline.computed(rank, 0.0, 0.010)
    timeline.flew((0, 1), "all_reduce", 0.010, 0.013, 4096)
    for rank in (0, 1):
        timeline.waited(rank, "all_reduce", 0.010, 0.013, 0.010)
        timeline.computed(rank, 0.013, 0.020)
    timeline.flew((1, 0), "send", 0.015, 0.016, 64)
    return timeline


def test_files_hold_what_was_done(tmp_path):
    paths = write_timeline(simulated(), tmp_path / "run")
    assert [p.name for p in paths] == ["run.0.et", "run.1.et"]
    version, nodes = read(paths[0])
    assert version == VERSION and [n["id"] for n in nodes] == [0, 1, 2, 3]
    assert [n["type"] for n in nodes] == [COMP, COLL, COMP, RECV]
    first, reduced, second, received = nodes
    assert (reduced["start"], reduced["took"]) == (10000, 3000)
    assert reduced["attr"]["comm_size"] == 4096 and reduced["attr"]["comm_type"] == 0
    assert reduced["attr"]["involved_ranks"] == "0,1" and not reduced["attr"]["is_cpu_op"]
    assert reduced["ctrl_deps"] == [first["id"]] and second["data_deps"] == [reduced["id"]]
    assert second["ctrl_deps"] == [first["id"]]
    assert (received["attr"]["comm_src"], received["attr"]["comm_dst"]) == (1, 0)
    assert read(paths[1])[1][3]["type"] == SEND


def test_waiting_is_no_node():
    assert all(node.kind != COMP or node.name == "compute" for node in of_timeline(simulated(), 0))


@pytest.mark.parametrize(("name", "verb"), [
    ("all_reduce", "all_reduce"), ("gloo:all_gather_single", "all_gather"),
    ("reduce_scatter_single", "reduce_scatter"), ("nccl:_reduce_scatter_base", "reduce_scatter"),
    ("c10d:allreduce_", None), ("send", None), ("barrier", "barrier"),
    ("close", "barrier"), ("split", "barrier"), ("rpc", None),
])  # fmt: skip
def test_verbs_of_names(name, verb):
    assert verb_of(name) == verb
    assert VERBS.index("all_to_all") == 6  # the schema's number


def test_large_numbers_and_names_survive(tmp_path):
    node = Node("größe", COLL, 1e15, 0.0, [5], [7, 1 << 40], 1 << 50, (0, 1))
    node.name = "all_reduce"
    write(tmp_path / "a.et", [node])
    _, [found] = read(tmp_path / "a.et")
    assert found["data_deps"] == [7, 1 << 40] and found["attr"]["comm_size"] == 1 << 50
    assert found["start"] == 10**15


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write(Path(tmp_path / "none" / "a.et"), [])
