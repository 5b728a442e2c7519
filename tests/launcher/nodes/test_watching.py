"""What nodes tell each other for people: `disttrain top`, stragglers, black boxes of all nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib

import pytest

from disttrain.comm.job.blackbox import Box
from disttrain.watch import nodes as shown
from disttrain_launcher.nodes import boxes
from disttrain_launcher.nodes.watching import PART, Exchange, gathered
from disttrain_launcher.plan.membership import RUNNING, Document
from disttrain_launcher.registry import Registry
from support.dtrun import ROOT, until
from support.nodes import Nodes

TWO = ("--nnodes", "2", "--nproc-per-node", "2")

# The last rank works for as long as its argument says; all until a file is there.
WORK = """
import os, sys, time
import disttrain as dt
import disttrain.distributed as dist
from disttrain import metrics
dist.init_process_group()
rank, slow = dist.get_rank(), float(sys.argv[1])
for step in range(100_000):
    time.sleep(slow if rank == 3 else 0.01)
    ends = dt.tensor([float(os.path.exists("../enough"))])
    dist.all_reduce(ends)
    metrics.step()
    if step == 3:
        open(f"up-{rank}", "w").close()
    if float(ends):
        break
    if rank == 3 and os.path.exists("../fail"):
        raise ValueError("no more")
"""


def top(job: Nodes, name: str) -> dict:
    folder = job.folder / name
    pids = [json.loads(f.read_text())["pid"] for f in (folder / "disttrain").glob("*.json")]
    env = os.environ | {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "disttrain.cli", "top", str(pids[0]), "--json"], cwd=ROOT, env=env,
        capture_output=True, text=True, timeout=40, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def started(job: Nodes, slow: str = "0.01", *flags: str) -> None:
    for name in "ab":
        job.start(name, *TWO, *flags, args=(slow,))
        if name == "a":
            until(job.listens, job.endpoint)
    for rank in range(4):
        until(lambda r=rank: any((job.folder / n / f"up-{r}").exists() for n in "ab"), str(rank))


@pytest.mark.timeout(90)
def test_top_shows_all_ranks_on_each_node_and_a_straggler_is_named_once_by_the_first(tmp_path):
    with Nodes(tmp_path, WORK) as job:
        job.start("a", *TWO, args=("0.12",))
        until(job.listens, job.endpoint)
        job.start("b", *TWO, args=("0.12",), ahead=86400)
        for rank in range(4):
            until(lambda r=rank: any((tmp_path / n / f"up-{r}").exists() for n in "ab"), str(rank))
        names = {n: f"{os.uname().nodename}:{job.pids[n]}" for n in "ab"}
        for name in "ab":
            rows = top(job, name)["ranks"]
            assert [row["rank"] for row in rows] == [0, 1, 2, 3], job.everything()
            assert {row["host"] for row in rows} == set(names.values())
            assert [row["node"] for row in rows] == [0, 0, 1, 1]
            assert all(row["step"] > 3 and row["steps_per_second"] > 0 for row in rows)
            steps = [row["step"] for row in rows]
            assert max(steps) - min(steps) < 1000
        until(lambda: "is a straggler" in job.said("a"), "it is named", 60)
        time.sleep(1.5)
        (tmp_path / "enough").touch()
        assert [job.ended(n) for n in "ab"] == [0, 0], job.everything()
        assert "black boxes" not in job.everything()
        lines = [line for line in job.everything().splitlines() if "straggler" in line]
        assert len(lines) == 1, lines
        assert (
            f"rank 3 on node {names['b']} is a straggler" in lines[0] and "all_reduce" in lines[0]
        )


@pytest.mark.parametrize("logs", [False, True])
def test_black_boxes_of_all_nodes_are_gathered_on_the_first_one(tmp_path, logs):
    with Nodes(tmp_path, WORK) as job:
        started(job, "0.01", *(("--log-dir", "log") if logs else ()))
        (tmp_path / "fail").touch()
        assert [job.ended(n) for n in "ab"] == [1, 1], job.everything()
        first, other = job.said("a"), job.said("b")
        assert "where the ranks of all 2 nodes stood" in first and "all 2 nodes" not in other
        told = [line for line in first.splitlines() if line.startswith("dtrun:   node ")]
        assert [line.partition("rank ")[2][0] for line in told] == ["0", "1", "2", "3"]
        assert all("all_reduce" in line and "script.py:" in line for line in told)
        assert "exit code 1" in told[3] and "node 1" in told[3]
        for place in (0, 1):
            path = tmp_path / "a" / "log" / f"node_{place}" / "attempt_0" / "blackbox"
            assert path.exists() == logs
        assert not (tmp_path / "b" / "log" / "node_0").exists()


def test_a_node_that_has_lost_the_first_one_keeps_its_own_box_and_says_where(tmp_path):
    with Nodes(tmp_path, WORK) as job:
        started(job, "0.01", "--log-dir", "log")
        job.kill("a")
        assert job.ended("b") == 75, job.everything()
        said = job.said("b")
        assert "where the ranks of one node, the only one that could tell, stood" in said
        assert "`disttrain blackbox log` shows them" in said
        lines = [line for line in said.splitlines() if line.startswith("dtrun:   node 1 (")]
        assert ["rank 2", "rank 3"] == [x.partition("): ")[2].partition(",")[0] for x in lines]
        assert (tmp_path / "b" / "log" / "node_1" / "attempt_0" / "blackbox").exists()


def test_boxes_are_gathered_where_nothing_has_failed_if_that_is_asked_for(tmp_path):
    with Nodes(tmp_path, WORK) as job:
        (tmp_path / "enough").touch()
        for name in "ab":
            job.start(name, *TWO, "--blackbox", args=("0.01",))
        assert [job.ended(n) for n in "ab"] == [0, 0], job.everything()
        assert job.everything().count("where the ranks of all 2 nodes stood") == 1
        assert job.everything().count("exit code 0") == 4


class Memory(Registry):
    """Keeps everything."""

    def __init__(self) -> None:
        self.shown: dict[str, bytes] = {}
        self.entries: dict[str, bytes] = {}

    def publish(self, key, value, seconds=5.0):
        assert len(value) <= PART
        self.shown[key] = value

    def published(self, prefix):
        n = len(prefix)
        return {k[n:]: v for k, v in self.shown.items() if k.startswith(prefix)}

    def put_leased(self, key, value):
        self.entries[key] = value

    def delete(self, key):
        self.entries.pop(key, None)


class Said:
    def __init__(self) -> None:
        self.messages: list[tuple[str, dict]] = []

    def send(self, kind, **content):
        self.messages.append((kind, content))


def document(*names: str) -> Document:
    nodes = tuple(
        {"name": n, "count": 1, "address": "x", "port": 1, "role": "default"} for n in names
    )
    return Document(3, phase=RUNNING, members=names, nodes=nodes)


@pytest.mark.simulated
def test_rows_are_asked_for_and_told_while_somebody_looks():
    registry, now = Memory(), time.monotonic()
    fd = shown.create()
    said = {name: Said() for name in "ab"}
    a = Exchange(registry, said["a"], fd, clock=lambda: now)
    b = Exchange(registry, said["b"], clock=lambda: now)
    d = document("a", "b")
    for each, name in ((a, "a"), (b, "b")):
        each.step(name, d, registry.entries)
    assert registry.entries == {} and shown.get(fd) == (0, [])
    shown.want(fd, now + 1)
    a.step("a", d, registry.entries)
    b.step("b", d, registry.entries)
    assert registry.entries == {"wanted/a": b"1"}
    assert said["b"].messages == [("watched", {"on": True})]
    assert b.hear({"kind": "rows", "number": 3, "node": 1, "name": "b", "rows": []})
    b.step("b", d, registry.entries)
    now += 0.6
    a.step("a", d, registry.entries)
    assert shown.get(fd)[1] == [{"number": 3, "node": 1, "name": "b", "rows": []}]
    now += 1
    a.step("a", d, registry.entries)
    b.step("b", d, registry.entries)
    assert registry.entries == {} and said["b"].messages[-1] == ("watched", {"on": False})
    assert not b.hear({"kind": "state"})
    os.close(fd)


@pytest.mark.simulated
def test_what_others_tell_is_compared_by_how_long_it_took_not_by_when_it_was():
    registry, said, now = Memory(), Said(), 0.0
    first = Exchange(registry, said, clock=lambda: now)
    d = document("a", "b", "c")
    clocks = {"a": 5, "b": 10**15, "c": 10**9}  # of their hosts
    registry.shown |= {"seen/x": b"no JSON", "seen/y": b'{"number": 3}', "seen/z": b"[]"}
    for second in range(1, 20):
        for rank, name in enumerate("abc"):
            at = clocks[name] + second * 1_100_000_000 + 37_000_000 * ((second * (rank + 3)) % 5)
            waited = int((at - clocks[name]) * (0.05 if name == "b" else 0.7))
            steps = (at - clocks[name]) // 100_000_000
            told = {"number": 3, "at": at, "in": "all_reduce at t.py:1",
                    "ranks": {str(rank): [waited, steps, steps, 0, 0, 50_000_000]}}  # fmt: skip
            registry.shown[f"seen/{name}"] = json.dumps(told).encode()
        first.step("a", d, {})
        now += 1.1
    texts = [content["text"] for kind, content in said.messages if kind == "say"]
    assert len(texts) == 1 and texts[0].startswith("rank 1 on node b is a straggler: 3.2 times")


@pytest.mark.simulated
def test_nobody_is_slow_while_a_rank_is_in_the_debugger():
    registry, said, now = Memory(), Said(), 0.0
    first = Exchange(registry, said, clock=lambda: now)
    waited = 0
    for second in range(1, 40):
        debugged = second % 4 > 1  # rank 1; the others wait
        waited += 10**9 if debugged else 10**7
        for rank, name in enumerate("abc"):
            steps = second * 10
            told = {"number": 3, "at": second * 10**9, "in": "all_reduce at t.py:1", "ranks":
                    {str(rank): [0 if rank == 1 else waited, steps, steps, 0, 0, 0]}}  # fmt: skip
            registry.shown[f"seen/{name}"] = json.dumps(told).encode()
        first.step("a", document("a", "b", "c"), {}, debugged)
        now += 1.1
    assert said.messages == []


@pytest.mark.simulated
def test_boxes_travel_in_parts_and_what_is_none_is_said(tmp_path):
    registry, d = Memory(), document("a", "b")
    for name, first in (("a", 0), ("b", 1)):
        fd = os.memfd_create("boxes")
        box = Box.create(1, {"host": f"h{first}", "generation": 3}, first)
        box.recorder(first)
        box.ended(first, 3)
        each = Exchange(registry, Said(), boxes_fd=fd)
        data = zlib.compress(bytes(box.buffer), 0)
        os.pwrite(fd, data, 0)
        assert each.hear({"kind": "box", "number": 3, "size": len(data)}) and each.has_box
        each.give_box(name, d)
        box.close()
        os.close(fd)
    fd = os.memfd_create("boxes")
    first = Exchange(registry, Said(), boxes_fd=fd)
    registry.shown["box/3.1.9.10"] = b"a part of another size"  # the parts do not make a whole
    registry.shown["box/2.0.0.1"] = b"of another generation"
    first.gather(d)
    found = list(gathered(fd))
    assert [place for place, _ in found] == [0]
    del registry.shown["box/3.1.9.10"]
    first.gather(d)
    lines = boxes.told(list(gathered(fd)), str(tmp_path))
    assert lines[1:] == [f"  node {r} (h{r}): rank {r}, step 0, exit code 3: no operation"
                         for r in (0, 1)]  # fmt: skip
    assert (tmp_path / "node_1" / "attempt_2" / "blackbox").exists()
    assert boxes.told([(4, b"junk"), (5, zlib.compress(b"x" * 10_000))], None) == []
    os.close(fd)
