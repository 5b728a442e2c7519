"""A profile as a Chakra trace."""

from __future__ import annotations

import disttrain as dt
from disttrain import distributed as dist
from disttrain.comm.transports.sim.chakra import COLL, COMP
from disttrain.profiler import profile
from disttrain.profiler.chakra import of_events
from disttrain.profiler.events import Event
from support.chakra import read


def test_operations_follow_each_other(tmp_path):
    a = dt.ones(8, 8)
    with profile(record_shapes=True, with_flops=True) as seen:
        b = a @ a
        (b + a).sum()
    path = seen.export_chakra_trace(str(tmp_path / "p"))
    assert path.endswith("p.0.et")
    _, nodes = read(path)
    names = [n["name"] for n in nodes]
    assert "aten::matmul" in names and all(n["type"] == COMP for n in nodes)
    product = nodes[names.index("aten::matmul")]
    assert product["attr"]["num_ops"] == 2 * 8**3
    assert [n["ctrl_deps"] for n in nodes[1:]] == [[n["id"] - 1] for n in nodes[1:]]


def test_collectives_say_what_they_send(tmp_path):
    def program():
        dist.init_process_group()
        x = dt.ones(16)
        with profile(record_shapes=True) as seen:
            dist.all_reduce(x + 1)
        path = seen.export_chakra_trace(str(tmp_path / "p"))
        dist.destroy_process_group()
        return path

    paths = dist.simulate(program, 2).results
    assert [p[-4] for p in paths] == ["0", "1"]
    _, nodes = read(paths[1])
    (reduced,) = [n for n in nodes if n["type"] == COLL]
    assert reduced["attr"]["comm_size"] == 64 and reduced["attr"]["involved_ranks"] == "0,1"
    assert reduced["ctrl_deps"]


def test_what_ran_inside_of_another_is_told_once():
    outer, inner = Event("outer", 0.0, 10.0, kind="cpu_op"), Event("inner", 2.0, 3.0, kind="cpu_op")
    behind = Event("behind", 11.0, 1.0, kind="cpu_op")
    assert [n.name for n in of_events([behind, inner, outer])] == ["outer", "behind"]
