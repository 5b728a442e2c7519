"""Meetings at a leader: who has come, who comes twice, who is lost before or meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disttrain.errors import CommError, PeerFailed, WaitTimeout
from disttrain.futures import Future
from disttrain.rpc.calls import kinds
from disttrain.rpc.calls.gathering import Gathering, answer_all, drain, end_calls, gathering
from disttrain.rpc.calls.workers import WorkerInfo

pytestmark = pytest.mark.simulated

A, B, C = (WorkerInfo(name, i) for i, name in enumerate("abc"))


class Agent:
    """A worker whose calls go to ``leader``'s handler at once, or nowhere."""

    def __init__(self, me=A):
        self.me, self.slots, self.handlers, self.when_lost = me, {}, {}, []
        self.in_flight, self.handling, self.started = {}, [], 0
        self.workers = SimpleNamespace(names=lambda: ["c", "a", "b"])
        self.asked, self.leader = [], self

    def handle(self, kind, handler):
        self.handlers[kind] = handler

    def slot(self, name, make):
        if name not in self.slots:
            self.slots[name] = make()
        return self.slots[name]

    def call(self, to, kind, obj, timeout, what):
        self.asked.append((to, obj, timeout, what))
        return self.leader.handlers[kind](self.me, obj)


@pytest.fixture
def leader():
    agent = Agent()
    return agent, Gathering(agent)


def come(agent, who, names="abc", number=1, value=None):
    return agent.handlers[kinds.GATHER](who, (tuple(names), number, value or who.name.upper()))


def test_all_get_everybody_s_values_when_the_last_has_come(leader):
    agent, _ = leader
    first, second = come(agent, C), come(agent, A)
    assert not first.done() and first is second
    assert come(agent, B).wait() == {"a": "A", "b": "B", "c": "C"} == first.wait()


def test_meetings_are_told_apart_by_who_takes_part_and_by_number(leader):
    agent, _ = leader
    futures = [come(agent, A), come(agent, A, "ab"), come(agent, A, "ab", 2)]
    assert len(set(map(id, futures))) == 3
    assert come(agent, B, "ab", 2).wait() == {"a": "A", "b": "B"}
    assert not futures[1].done()


def test_who_is_not_expected_or_comes_twice_is_refused(leader):
    agent, _ = leader
    come(agent, A, "ab")
    for who in (C, A):
        with pytest.raises(CommError, match=rf"{who.name} is not expected by the leader of \['a'"):
            come(agent, who, "ab")
    assert come(agent, B, "ab").wait() == {"a": "A", "b": "B"}


def test_a_worker_that_is_lost_ends_the_meetings_that_it_has_not_come_to(leader):
    agent, _ = leader
    waits, whole = come(agent, A), come(agent, A, "ab")
    come(agent, C)
    lost = PeerFailed(1, "killed by SIGKILL")
    for tell in agent.when_lost:
        tell(B, lost)
    for future in (waits, whole):
        with pytest.raises(
            PeerFailed, match=r"worker 'b' did not come to a meeting of all.*SIGKILL"
        ):
            future.wait()
    with pytest.raises(PeerFailed, match="SIGKILL"):
        come(agent, A, number=2).wait()  # one that begins later
    assert come(agent, A, "ac").done() is False, "one that does without"
    assert lost.__traceback__ is None


def test_a_meeting_that_the_lost_one_had_come_to_goes_on(leader):
    agent, _ = leader
    future = come(agent, B)
    for tell in agent.when_lost:
        tell(B, PeerFailed(1, "x"))
    come(agent, A), come(agent, C)
    assert set(future.wait()) == set("abc")


def test_the_one_with_the_smallest_name_leads_and_meetings_are_numbered(leader):
    agent, mine = leader
    agent.call = lambda *args: asked.append(args) or SimpleNamespace(wait=lambda: "all")
    asked = []
    assert mine.all_gather(5) == "all"
    mine.all_gather(6, ["b", "a"], 3.0)
    mine.all_gather(7)
    assert asked == [
        ("a", kinds.GATHER, (("a", "b", "c"), 1, 5), 0.0, "_all_gather"),
        ("a", kinds.GATHER, (("a", "b"), 1, 6), 3.0, "_all_gather"),
        ("a", kinds.GATHER, (("a", "b", "c"), 2, 7), 0.0, "_all_gather"),
    ]


def test_a_meeting_that_takes_too_long_names_who_is_missing(leader):
    agent, mine = leader

    class Late(Future):
        def wait(self):
            raise WaitTimeout("too late")

    def call(to, kind, obj, timeout, what):
        agent.handlers[kind](A, obj)
        return Late()

    agent.call = call
    with pytest.raises(WaitTimeout, match=r"Followers \['b', 'c'\] timed out .* after 2\.50 sec"):
        mine.all_gather(1, timeout=2.5)


def test_a_worker_has_one_gathering():
    agent = Agent()
    assert gathering(agent) is gathering(agent)


class Rounds(Agent):
    """A worker that meets others who have started ``told`` calls, round by round."""

    def __init__(self, told):
        super().__init__()
        self.told, self.rounds = list(told), 0

    def slot(self, name, make):
        return SimpleNamespace(all_gather=self.gather)

    def gather(self, mine, names, timeout):
        self.rounds += 1
        return {"a": mine, "b": self.told.pop(0)}


def test_all_is_at_rest_when_two_rounds_tell_the_same_and_nobody_was_busy():
    for told, rounds in (
        ([(3, False)] * 2, 2),
        ([(3, False), (4, False), (4, False)], 3),
        ([(3, True), (3, True), (3, False), (3, False)], 4),
    ):
        agent = Rounds(told)
        drain(agent)
        assert agent.rounds == rounds, told


def test_calls_under_way_are_waited_for_and_named():
    agent = Agent()
    future = SimpleNamespace(done=lambda: False, what="add", describe=lambda: "add on worker b")
    agent.in_flight[1] = future
    for wait in (end_calls, drain):
        with pytest.raises(WaitTimeout, match="shutdown: the end of add on worker b"):
            wait(agent, 0.001)
    future.done = lambda: True
    end_calls(agent, 0.001)
    agent.handling.append(SimpleNamespace(kind=kinds.FUNCTION, caller=B))
    with pytest.raises(WaitTimeout, match="a request of b"):
        answer_all(agent, 0.001)
    agent.handling.clear()
    answer_all(agent, 0.001)
