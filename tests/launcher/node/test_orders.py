"""What the keeper tells the agent: the last word holds, and silence is "stop"."""

from __future__ import annotations

import pytest

from disttrain_launcher.node import orders as module
from disttrain_launcher.node.orders import Orders
from disttrain_launcher.plan.generation import Generation
from disttrain_launcher.plan.states import READY

pytestmark = pytest.mark.simulated


class Fake:
    """The channel, with what the keeper says next."""

    def __init__(self):
        self.open, self.coming, self.sent = True, [], []

    def receive(self):
        found, self.coming = self.coming, []
        return found

    def send(self, kind, **content):
        self.sent.append((kind, content))

    def hear(self, kind, **content):
        self.coming.append({"kind": kind, **content})


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(module, "say", lines.append)
    return lines


@pytest.fixture
def orders(said):
    return Orders(Fake(), fence=2.0, name="here:1")


def told(orders, kind, **content):
    orders.channel.hear(kind, **content)
    return orders.take()


def generation(number, why=""):
    return {"fields": Generation((2, 2), number=number).to_json(), "why": why}


def test_a_generation_is_begun_once(orders):
    assert orders.begin(0.0) is None
    told(orders, "alive", at=0.0)
    told(orders, "generation", **generation(1))
    assert orders.begin(1.0).number == 1 and orders.running == 1
    assert orders.begin(1.0) is None and not orders.is_over


def test_one_that_is_over_before_it_began_is_reported(orders):
    told(orders, "alive", at=0.0)
    told(orders, "generation", **generation(3))
    told(orders, "stop", number=3, failed=False, saving=False, why="a node has left")
    assert orders.begin(1.0) is None and orders.is_over
    assert orders.channel.sent == [("state", {"state": READY, "report": {}})]


def test_a_stop_of_an_older_generation_stops_nothing(orders):
    told(orders, "alive", at=0.0)
    told(orders, "generation", **generation(3))
    orders.begin(1.0)
    told(orders, "stop", number=2, failed=True, saving=True, why="x")
    assert not orders.is_over and orders.patient and orders.saving
    told(orders, "stop", number=3, failed=False, saving=False, why="y")
    assert orders.is_over and not orders.patient
    told(orders, "stop", number=1, failed=False, saving=False, why="y")
    assert orders.stop == 3, "never back"


def test_silence_for_longer_than_the_fence_is_a_stop_told_once(orders, said):
    told(orders, "alive", at=10.0)
    told(orders, "generation", **generation(1))
    orders.begin(10.0)
    assert orders.waits(11.0) == [pytest.approx(1.001)] and orders.waits(99.0) == [0.001]
    assert not orders.lapses(12.0) and not orders.is_over
    assert orders.lapses(12.1) and orders.is_over and orders.fenced
    assert said == [
        "this node's lease was not confirmed for 2.0 s; its ranks are stopped before the others "
        "can take it for lost"
    ]
    assert not orders.lapses(50.0) and orders.waits(50.0) == []


def test_what_lies_unread_counts_as_said(orders):
    told(orders, "alive", at=10.0)
    orders.channel.hear("alive", at=20.0)
    assert not orders.lapses(21.0) and orders.alive_at == 20.0


def test_ranks_that_are_being_stopped_are_killed_too_without_words(orders, said):
    told(orders, "alive", at=0.0)
    told(orders, "generation", **generation(1))
    orders.begin(0.0)
    told(orders, "stop", number=1, failed=True, saving=True, why="")
    assert orders.lapses(5.0) and not orders.saving and not orders.patient and said == []


def test_a_fenced_node_says_so_when_it_is_to_begin(orders):
    told(orders, "alive", at=0.0)
    told(orders, "generation", **generation(2))
    assert orders.begin(9.0) is None
    assert orders.channel.sent == [("state", {"state": READY, "report": {"fenced": True}})]


def test_before_the_first_word_and_after_the_end_there_is_no_lease(orders):
    assert not orders.lapses(1e9) and orders.waits(0.0) == []
    told(orders, "alive", at=0.0)
    told(orders, "end", code=0, why="", result={"node": "there:2"}, saving=True)
    assert not orders.lapses(1e9) and orders.waits(0.0) == []
    assert orders.is_over and orders.patient and orders.saving


def test_a_keeper_that_has_gone_is_the_end(orders):
    orders.channel.open = False
    assert not orders.take()
    assert orders.end["code"] == 1 and "keeper process of this node has ended" in orders.end["why"]
    told(orders, "end", code=0, why="well", result={})
    orders.take()
    assert orders.end["why"] == "well", "what it has said last is kept"


def test_news_of_another_generation_is_dropped(orders):
    told(orders, "alive", at=0.0)
    told(orders, "generation", **generation(2))
    orders.begin(0.0)
    for number in (1, 2, 3):
        told(orders, "failure", number=number, rank=number)
        told(orders, "elsewhere", number=number, move=number == 2, awaited=number)
    assert [f["rank"] for f in orders.failures] == [2]
    assert orders.others_move and orders.awaited == 2
    told(orders, "generation", **generation(3))
    orders.begin(0.0)
    assert orders.failures == [] and orders.awaited == -1 and not orders.others_move


def test_news_of_a_generation_that_is_about_to_begin_is_kept(orders, said):
    """The keeper says it once, and may do so before the agent has begun."""
    told(orders, "alive", at=0.0)
    orders.channel.hear("generation", **generation(2))
    orders.channel.hear("failure", number=2, rank=1)
    told(orders, "elsewhere", number=2, move=True, awaited=-1, left=3, debugged="rank 1 is")
    assert said == [] and orders.debugged == ""
    orders.begin(0.0)
    assert [f["rank"] for f in orders.failures] == [1] and orders.others_move
    assert (orders.others_left, orders.debugged, said) == (3, "rank 1 is", ["rank 1 is"])


@pytest.mark.parametrize("kind, more, hurries", [
    ("end", {"code": 1, "result": {"node": "x:1"}}, False),
    ("end", {"code": 137, "result": {"node": "x:1"}}, False),
    ("end", {"code": 76, "result": {"code": 76}}, False),
    ("end", {"code": 130, "result": {"code": 130}}, True),
    ("end", {"code": 130, "result": {"code": 130}, "saving": True}, True),
    ("stop", {"number": 2, "failed": True, "saving": False}, False),
    ("stop", {"number": 2, "failed": False, "saving": True}, True),
    ("stop", {"number": 2, "failed": False, "saving": False, "lost": True}, True),
])  # fmt: skip
def test_who_looks_at_a_rank_in_the_debugger_is_waited_for_by_failures_alone(
    orders, kind, more, hurries
):
    told(orders, "alive", at=0.0)
    told(orders, "generation", **generation(2))
    orders.begin(0.0)
    told(orders, "elsewhere", number=2, move=True, awaited=-1, debugged="rank 1 is")
    assert not orders.hurries and orders.debugged
    told(orders, kind, why="for a reason", **more)
    assert orders.is_over and orders.hurries == hurries
    assert orders.debugged == "", "those here wait for nobody elsewhere"


def test_why_something_changes_is_said_once(orders, said):
    told(orders, "generation", **generation(1, "the first"))
    told(orders, "generation", **generation(2, "a node was lost"))
    told(orders, "stop", number=2, failed=False, saving=False, why="a node was lost")
    told(orders, "say", text="hello")
    told(orders, "stop", number=2, failed=False, saving=False, why="the end")
    assert said == ["a node was lost", "hello", "the end"]


def test_reports_are_cut_and_standing_is_told_when_it_changes(orders):
    orders.report("failed", {"traceback": "x" * 10**6, "rank": 1})
    ((kind, content),) = orders.channel.sent
    assert kind == "state" and len(content["report"]["traceback"]) < 10**5
    orders.channel.sent.clear()
    for stands in ({"0": "a"}, {"0": "a"}, {"0": "b"}):
        orders.tell_standing(stands)
    assert [c["stands"] for _, c in orders.channel.sent] == [{"0": "a"}, {"0": "b"}]
