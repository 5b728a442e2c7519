"""How a keeper joins where an earlier job has left something. Its registry is a dictionary."""

from __future__ import annotations

import dataclasses

import pytest

from disttrain_launcher.node.channel import Channel, Unread, pair
from disttrain_launcher.nodes.keeper import DOCUMENT, NODES, RUN_ID, Keeper
from disttrain_launcher.options.rendezvous import Rendezvous
from disttrain_launcher.plan.membership import ENDED, GATHERING, RUNNING, WORKING, Document, Node
from disttrain_launcher.registry import Registry, Snapshot


class Memory(Registry):
    """What all nodes share, as a registry that outlives jobs."""

    outlives_jobs = True
    ttl = patience = 1.0
    where = "memory"

    def __init__(self, entries: dict[str, bytes]) -> None:
        self.entries, self.changes = entries, 0

    def put_leased(self, key: str, value: bytes) -> None:
        self.entries[key] = value

    def renew(self) -> None:
        """It holds."""

    def compare_swap(self, key: str, expected: bytes | None, new: bytes) -> bool:
        self.changes += 1
        same = self.entries.get(key) == expected
        if same:
            self.entries[key] = new
        return same

    def read(self) -> Snapshot:
        return Snapshot(self.changes, dict(self.entries))

    def delete(self, key: str) -> None:
        self.entries.pop(key, None)

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.fixture
def keepers():
    made, entries, agents = [], {}, {}

    def keeper(name: str) -> Keeper:
        ours, its = pair()
        made.append((ours, its))
        agents[name] = ours
        r = Rendezvous("etcd", "a", "a", 1, "job", 2, 2)
        return Keeper(Memory(entries), Node(name, 1), r, 0, Channel(its), False)

    keeper.entries, keeper.agents = entries, agents
    yield keeper
    for ends in made:
        for end in ends:
            end.close()


def left_behind(phase: str, nodes: dict[str, Node]) -> dict[str, bytes]:
    members = ("x", "y")
    said = tuple({"name": i, "count": 1, "address": "a", "port": 1, "role": ""} for i in members)
    document = Document(7, 0, phase, members, said, restart_count=3, result={"code": 0})
    return {DOCUMENT: document.encode(), **{NODES + i: n.encode() for i, n in nodes.items()}}


def test_an_agent_that_reads_nothing_keeps_its_node_and_hears_the_end_later(keepers):
    a, b = keepers("a"), keepers("b")
    for _ in range(4):
        a.step()
        b.step()
    assert a.node.state == WORKING
    with pytest.raises(Unread):
        while True:
            a.channel.send("say", text="x" * 1000)
    a.renewed = -1e9
    document = Document.decode(keepers.entries[DOCUMENT])
    ended = dataclasses.replace(document, phase=ENDED, result={"code": 3})
    keepers.entries[DOCUMENT] = ended.encode()
    a.step()
    assert a.renewed > 0 and not a.ended
    agent = Channel(keepers.agents["a"])
    assert "generation" in [m["kind"] for m in agent.receive()]
    a.step()
    assert a.ended and ("end", 3) in [(m["kind"], m.get("code")) for m in agent.receive()]


GOOD = Document(7, 0, RUNNING, ("x",), ({"name": "x", "count": 1, "address": "a", "port": 1,
                                         "role": ""},)).encode()  # fmt: skip
DAMAGED = [
    b"", b"\xff\xfe", GOOD[:40], b"null", b"[]", b"7", b'"text"', b"[" * 100_000,
    b'{"number": "7"}',
    GOOD.replace(b'"running"', b'"walking"'), GOOD.replace(b'["x"]', b'["x", "y"]'),
    GOOD.replace(b'["x"]', b'"x"'), GOOD.replace(b'["x"]', b"[1]"),
    GOOD.replace(b'"count"', b'"c"'),
    GOOD.replace(b'"port": 1', b'"port": "1"'), GOOD.replace(b'"number": 7', b'"number": -7'),
    GOOD.replace(b'"wait": 0.0', b'"wait": Infinity'), GOOD.replace(b'"wait": 0.0', b'"wait": NaN'),
    GOOD.replace(b'"result": {}', b'"result": {"code": "x"}'), b'{"phase": "running"}',
    GOOD.replace(b'"result": {}', b'"result": []'), GOOD.replace(b'"why": ""', b'"why": null'),
]  # fmt: skip


@pytest.mark.parametrize("damaged", DAMAGED)
@pytest.mark.parametrize("when", ["before", "while it runs"])
def test_a_damaged_document_ends_the_job_with_its_name(keepers, damaged, when):
    a, b = keepers("a"), keepers("b")
    for _ in range(0 if when == "before" else 4):
        a.step()
        b.step()
    keepers.entries[DOCUMENT] = damaged
    assert damaged != GOOD
    for keeper in (a, b):
        for _ in range(2):
            keeper.step()
        heard = Channel(keepers.agents[keeper.node.name]).receive()
        [end] = [message for message in heard if message["kind"] == "end"]
        assert end["code"] == 2 and "the entry 'document' is damaged: it" in end["why"]
        keeper.leave()


NODE = Node("x", 1, state=WORKING, ran=7).encode()


@pytest.mark.parametrize("damaged", [
    b"", b"{}", b"[1]", NODE.replace(b'"running"', b'"ready?"'), NODE.replace(b'"x"', b"null"),
    NODE.replace(b'"count": 1', b'"count": 0'), NODE.replace(b'"ran": 7', b'"ran": "7"'),
    NODE.replace(b'"report": {}', b'"report": {"code": []}'),
    NODE.replace(b'"stands": {}', b'"stands": {"busy": "1"}'), NODE.replace(b"{}", b"0", 1),
])  # fmt: skip
def test_so_does_a_damaged_entry_of_a_node(keepers, damaged):
    keepers.entries[NODES + "x"] = damaged
    a = keepers("a")
    a.step()
    [end] = [m for m in Channel(keepers.agents["a"]).receive() if m["kind"] == "end"]
    assert end["code"] == 2 and "the entry 'nodes/x' is damaged" in end["why"]


@pytest.mark.parametrize("phase", [GATHERING, RUNNING, ENDED])
def test_what_an_earlier_job_has_left_is_put_aside(keepers, phase):
    keepers.entries.update(left_behind(phase, {}))
    a, b = keepers("a"), keepers("b")
    for _ in range(6):
        a.step()
        b.step()
    document = Document.decode(keepers.entries[DOCUMENT])
    assert (document.number, document.phase, document.restart_count) == (8, RUNNING, 0)
    assert {node["name"] for node in document.nodes} == {"a", "b"}


@pytest.mark.parametrize(
    ("phase", "name", "kept"),
    [(RUNNING, "mine", "x-1"), (RUNNING, "none", ""), (ENDED, "mine", "")],
)
def test_a_named_job_that_has_lost_all_nodes_is_the_same_job(keepers, phase, name, kept):
    keepers.entries |= left_behind(phase, {})
    left = dataclasses.replace(Document.decode(keepers.entries[DOCUMENT]), job="x-1")
    keepers.entries[DOCUMENT] = left.encode()
    a = keepers("a")
    a.node = dataclasses.replace(a.node, terms={RUN_ID: name})
    a.step()
    assert Document.decode(keepers.entries[DOCUMENT]).job == kept


def test_a_job_that_is_ending_is_waited_for(keepers):
    keepers.entries.update(left_behind(ENDED, {"x": Node("x", 1, state=WORKING, ran=7)}))
    a = keepers("a")
    for _ in range(3):
        a.step()
    assert not a.id and not a.ended and set(keepers.entries) == {DOCUMENT, NODES + "x"}
    del keepers.entries[NODES + "x"]
    for _ in range(3):
        a.step()
    assert a.id and Document.decode(keepers.entries[DOCUMENT]).phase == GATHERING


@pytest.mark.parametrize("unread", [False, True])
def test_what_was_said_before_an_end_is_heard(unread):
    """Also by who finds out by speaking that nobody listens, or was not listened to."""
    ours, its = (Channel(sock) for sock in pair())
    if unread:
        ours.send("alive", at=1.0)
    its.send("state", state="leaving")
    its.close()
    ours.send("alive", at=2.0)
    heard = [message["state"] for _ in range(3) for message in ours.receive()]
    assert heard == ["leaving"] and not ours.open
    ours.close()
