"""Messages between simulated ranks do what every transport does, and go wrong as they are told."""

from __future__ import annotations

import pytest
from rpc.messages.conformance import Conformance, Node
from rpc.messages.nodes import TOKEN

from disttrain import context
from disttrain.comm.transports import sim
from disttrain.errors import CommError, LaunchError, PeerFailed
from disttrain.rpc.messages.contract.message import Message
from disttrain.rpc.messages.simulated import Faults, SimulatedEndpoint, network

pytestmark = pytest.mark.simulated


def body(fn, limits, shared, faults):
    me = context.current()
    if me.rank == 0 and faults is not None:
        network().ask_for(faults)
    with SimulatedEndpoint(me.rank, TOKEN, limits) as endpoint:
        node = Node(me.rank, me.world_size, endpoint, shared)
        node.start()
        return fn(node)


class Simulated:
    def run(self, n, fn, limits=None):
        try:
            return sim.simulate(body, n, seed=n, args=(fn, limits, {}, Faults(late=0.2))).results
        except LaunchError as error:
            raise AssertionError(str(error)) from error.__cause__


@pytest.fixture
def nodes():
    return Simulated()


class TestSimulated(Conformance):
    """Nothing more than that."""


def run(n, fn, faults=None, seed=0):
    """The tasks of ``n`` ranks that run ``fn(node)``."""
    return sim.run_tasks(body, n, seed=seed, args=(fn, None, {}, faults)).tasks


def survivor(peer, calls=100):
    """A program that calls ``peer`` until it is lost, or for so many times."""

    def fn(node):
        node.handle = node.echo
        if node.me != peer:
            node.endpoint.connect(peer, node._shared["addresses"][peer])
        node.meet()
        try:
            for i in range(calls if node.me != peer else 0):
                assert node.call(peer, head=b"%d" % i).head == b"%d" % i
        except PeerFailed as error:
            node.until(lambda: peer in node.lost)
            return i, error.rank, error.cause, context.now()
        node.until(lambda: len(node.lost) >= node.size - 1)
        return None

    return fn


def test_the_order_is_drawn_from_the_seed() -> None:
    def fn(node):
        for i in range(3):
            node.endpoint.send(1 - node.me, Message(1, 0, head=b"%d" % i))
        node.until(lambda: len(node.got) == 3)
        node.meet()
        return b"".join(m.head for _, m in node.got)

    orders = [tuple(t.result for t in run(2, fn, seed=seed)) for seed in range(30)]
    again = [tuple(t.result for t in run(2, fn, seed=seed)) for seed in range(30)]
    assert orders == again and len(set(orders)) > 8


def test_late_messages_take_time() -> None:
    def fn(node):
        node.handle = node.echo
        node.meet()
        for _ in range(10):
            node.call(1 - node.me)
        node.meet()
        return context.now()

    assert [t.result for t in run(2, fn)] == [0.0, 0.0]
    slow = run(2, fn, Faults(late=1.0, delay=0.5))
    assert 1.0 < slow[0].result < 10.0


@pytest.mark.parametrize("at", [1, 2, 3, 10, 31])
def test_a_worker_is_killed_at_a_message(at: int) -> None:
    for seed in range(4):
        tasks = run(3, survivor(1), Faults(kill={1: at}), seed)
        assert isinstance(tasks[1].error, sim.Killed)
        for me in (0, 2):
            calls, rank, cause, now = tasks[me].result
            assert rank == 1 and "closed its connection" in cause and now < 2.0
            assert calls <= at


def test_a_broken_connection_is_told_to_both_sides() -> None:
    def fn(node):
        node.handle = node.echo
        node.meet()
        if node.me == 0:
            assert node.call(2, head=b"fine").head == b"fine"
            with pytest.raises(PeerFailed):
                for _ in range(5):
                    node.call(1)
        if node.me < 2:
            node.until(lambda: 1 - node.me in node.lost)
        told = {peer: error.cause for peer, error in node.lost.items()}
        node.meet()
        return told

    for seed in range(5):
        results = [t.result for t in run(3, fn, Faults(breaks={(1, 0): 5}), seed)]
        assert results == [{1: "the connection broke"}, {0: "the connection broke"}, {}]


def test_who_is_cut_off_is_lost_within_two_seconds() -> None:
    def fn(node):
        node.handle = node.echo
        node.meet()
        for peer in range(node.size):
            node.call(peer)
        context.sleep(1.0)
        other = 3 - node.me
        begun = context.now()
        with pytest.raises(PeerFailed, match="nothing was heard of it"):
            node.call(other)
        node.until(lambda: len(node.lost) == 2)
        assert context.now() - begun < 2.0
        assert node.call(node.me ^ 1, head=b"fine").head == b"fine"  # on the same side
        told = sorted(node.lost)
        node.meet()
        return told

    tasks = run(4, fn, Faults(cut_off=(0, 1), cut_at=1.0))
    assert [t.result for t in tasks] == [[2, 3], [2, 3], [0, 1], [0, 1]]


def test_who_waits_for_an_answer_that_nobody_gives_is_told_of_the_deadlock() -> None:
    def fn(node):
        node.handle = lambda peer, message: node.until(lambda: False, "something", _nothing)
        node.meet()
        if node.me == 0:
            node.call(1)
        node.until(lambda: False, "nothing", _nothing)

    tasks = run(2, fn)
    for line in ("rank 0: call 1", "rank 1 (request of worker 0): something", "rank 1: nothing"):
        assert line in str(tasks[0].error)


def _nothing(seconds: float) -> None:
    """Others go on."""


def test_another_token_is_refused() -> None:
    def fn() -> None:
        me = context.current().rank
        with SimulatedEndpoint(me, bytes(32)) as one, SimulatedEndpoint(7, TOKEN) as other:
            with pytest.raises(PeerFailed, match="is not it"):
                one.connect(7, other.address)
            with pytest.raises(PeerFailed, match="is not it"):
                one.connect(8, one.address)
            with pytest.raises(PeerFailed, match="nobody answers"):
                one.connect(9, "sim:99")

    sim.simulate(fn, 1)


def test_simulated_endpoints_are_for_simulated_ranks() -> None:
    with pytest.raises(CommError, match="simulated ranks"):
        SimulatedEndpoint(0, TOKEN)
