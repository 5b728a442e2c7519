"""What every transport of messages must do, as one class of tests.

A transport's test file subclasses ``Conformance`` and gives a fixture ``nodes``:

    nodes.run(n, fn, limits=None)   call fn(node) for n workers, each a rank of its own of this
                                    process; the results by worker, or the first failure

A node has ``me``, ``size``, ``endpoint`` (serving; every node knows where the others are), ``got``
(messages that came, as (peer, message)), ``lost`` ({peer: error}), ``handle`` (set it to handle
requests: ``handle(peer, message)``; else they are kept in ``got``), ``ask`` and ``answer``, and
``meet`` (a barrier). All waiting goes through ``context``, so a simulator can run it.
"""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import pytest

from disttrain import context
from disttrain.comm.calls.header import DTYPES
from disttrain.errors import CommError, ConfigError, DTypeError, MessageTooLarge, PeerFailed
from disttrain.rpc.messages.contract.message import Limits, Message

WAIT = 50.0  # it ends tests that hang, and no others


class Node:
    """One worker of a test."""

    def __init__(self, me, size, endpoint, shared):
        self.me, self.size, self.endpoint, self._shared = me, size, endpoint, shared
        self.got, self.lost = [], {}
        self.answers = {}
        self.handle = self.on_answer = None
        self._calls = itertools.count(1)
        self._round = 0

    def start(self):
        self.endpoint.serve(self._on_message, self.lost.__setitem__)
        self._shared.setdefault("addresses", {})[self.me] = self.endpoint.address
        self.meet()
        for peer, address in self._shared["addresses"].items():
            self.endpoint.introduce(peer, address)
        self.meet()

    def _on_message(self, peer, message):
        if message.answers:
            self.answers[message.call] = message
            if self.on_answer is not None:
                self.on_answer(peer, message)
        elif self.handle is not None:
            self.handle(peer, message)
        else:
            self.got.append((peer, message))

    def meet(self):
        """Wait for all nodes."""
        self._round += 1
        came = self._shared.setdefault(("round", self._round), set())
        came.add(self.me)
        self.until(lambda: len(came) == self.size, "all nodes to come")

    def until(self, ready, what="a test's condition", block=None):
        context.wait_until(ready, lambda: what, WAIT, block)

    def ask(self, peer, awaited=False, **message):
        """Send a request; its call."""
        call = next(self._calls)
        self.endpoint.send(peer, Message(1, call, **message), awaited)
        return call

    def wait(self, peer, call):
        """The answer to a call, read by this thread."""
        block = self.endpoint.waiting(peer, call)
        self.until(lambda: call in self.answers or peer in self.lost, f"call {call}", block)
        if call not in self.answers:
            raise self.lost[peer]
        return self.answers.pop(call)

    def call(self, peer, **message):
        return self.wait(peer, self.ask(peer, True, **message))

    def answer(self, peer, request, **message):
        self.endpoint.send(peer, Message(request.kind, request.call, True, **message))

    def echo(self, peer, message):
        """A handler: send everything back."""
        self.answer(
            peer, message, head=message.head, payload=message.payload, arrays=message.arrays
        )


def samples():
    """Arrays of all kinds: every element type, no dimension, none of an element, large ones."""
    shapes = [(), (0,), (3,), (2, 0, 5), (1, 1), (7, 11, 3), (300, 401)]
    rng = np.random.default_rng(0)
    for i, dtype in enumerate(DTYPES):
        for shape in shapes if i in (0, 9, 10, 11) else shapes[:4]:
            yield (rng.random(shape) * 100).astype(dtype)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Conformance:
    """See the module."""

    def test_a_request_is_answered(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            peer = (node.me + 1) % node.size
            answer = node.call(peer, head=b"head", payload=b"payload", arrays=[np.arange(5.0)])
            node.meet()
            return answer.head, bytes(answer.payload), answer.arrays[0].tolist(), answer.kind

        assert nodes.run(3, body) == [(b"head", b"payload", [0.0, 1.0, 2.0, 3.0, 4.0], 1)] * 3

    def test_arrays_of_every_type_and_shape_arrive_as_they_were(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            sent = list(samples())
            came = node.call(1 - node.me, arrays=sent).arrays
            node.meet()
            return [a.dtype.name for a, b in zip(sent, came) if not same(a, b)], len(came)

        assert nodes.run(2, body) == [([], len(list(samples())))] * 2

    @pytest.mark.parametrize("size", [0, 1, 40_000, 50_000, 99_000, 3_000_000])
    def test_heads_payloads_and_arrays_of_every_size(self, nodes, size):
        def body(node):
            node.handle = node.echo
            node.meet()
            if node.me == 1:
                node.meet()
                return None
            data = np.arange(size, dtype=np.uint8)
            raw = data.tobytes()
            cases = [
                {"payload": raw},
                {"payload": memoryview(raw), "head": raw[:100_000]},
                {"arrays": [data, data[: size // 2], data]},
                {"payload": raw, "arrays": [data, data.view("i1")]},
                {"arrays": [data[i : i + 997].copy() for i in range(0, min(size, 500_000), 997)]},
            ]
            for case in cases:
                came = node.call(1, **case)
                assert bytes(came.payload) == bytes(case.get("payload", b""))
                assert came.head == case.get("head", b"")
                assert all(map(same, came.arrays, case.get("arrays", [])))
                assert len(came.arrays) == len(case.get("arrays", []))
            node.meet()
            return "ok"

        assert nodes.run(2, body)[0] == "ok"

    def test_more_arrays_than_a_packet_can_tell_of(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            sent = [np.full((1, i % 3), i) for i in range(6_000)]
            came = node.call(1 - node.me, arrays=sent).arrays if node.me == 0 else sent
            node.meet()
            return len(came), all(map(same, sent, came))

        assert nodes.run(2, body) == [(6_000, True)] * 2

    def test_received_arrays_are_writable_and_private(self, nodes):
        def body(node):
            kept, handled = [], []

            def handle(peer, message):
                kept.append(message.arrays)
                for array in message.arrays:
                    array += 1
                node.answer(peer, message, arrays=message.arrays)
                for array in message.arrays:
                    array += 100
                handled.append(peer)

            node.handle = handle
            node.meet()
            sent = [np.zeros(4), np.zeros(100_000)]
            came = node.call(1 - node.me, arrays=sent).arrays
            for array in sent:
                array -= 50
            node.until(lambda: handled)
            node.meet()
            result = [a.max() for a in (*sent, *came, *kept[0])]
            node.meet()
            return result

        assert nodes.run(2, body) == [[-50, -50, 1, 1, 101, 101]] * 2

    def test_the_caller_may_change_its_arrays_after_send(self, nodes):
        def body(node):
            if node.me == 0:
                array = np.zeros(200_000)
                for i in range(20):
                    array[:] = i
                    node.endpoint.send(1, Message(0, 0, arrays=[array]))
                node.meet()
                return None
            node.until(lambda: len(node.got) == 20)
            node.meet()
            return [set(m.arrays[0].tolist()) for _, m in node.got]

        got = nodes.run(2, body)[1]
        assert sorted(got, key=min) == [{float(i)} for i in range(20)]

    def test_received_arrays_outlive_everything(self, nodes):
        def body(node):
            if node.me == 0:
                node.endpoint.send(1, Message(0, 0, arrays=[np.full(100_000, 7.0)]))
            else:
                node.until(lambda: node.got)
            node.meet()
            node.endpoint.close()
            node.meet()
            return [float(m.arrays[0].sum()) for _, m in node.got]

        assert nodes.run(2, body) == [[], [700_000.0]]

    def test_a_worker_may_be_its_own_peer(self, nodes):
        def body(node):
            node.handle = node.echo
            return node.call(node.me, arrays=[np.arange(3)]).arrays[0].tolist()

        assert nodes.run(1, body) == [[0, 1, 2]]

    def test_handlers_may_block_and_call_back(self, nodes):
        """A call that goes to and fro twenty times before it is answered."""

        def body(node):
            def handle(peer, message):
                depth = int(message.head)
                if depth:
                    inner = node.call(peer, head=b"%d" % (depth - 1))
                    node.answer(peer, message, head=inner.head + b".")
                else:
                    node.answer(peer, message, head=b"!")

            node.handle = handle
            node.meet()
            came = node.call(1, head=b"20").head if node.me == 0 else None
            node.meet()
            return came

        assert nodes.run(2, body)[0] == b"!" + b"." * 20

    def test_a_handler_that_blocks_keeps_nobody_waiting(self, nodes):
        def body(node):
            opened = []

            def handle(peer, message):
                if message.head == b"wait":
                    node.until(lambda: opened)
                else:
                    opened.append(True)
                node.answer(peer, message)

            node.handle = handle
            node.meet()
            if node.me == 0:
                calls = [node.ask(1, head=b"wait") for _ in range(8)]
                node.ask(1, head=b"open")
                for call in calls:
                    node.wait(1, call)
            node.meet()
            return "ok"

        assert nodes.run(2, body) == ["ok"] * 2

    def test_answers_come_though_nobody_waits(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            calls = {node.ask(1 - node.me) for _ in range(50)}
            node.until(lambda: calls == set(node.answers))
            node.meet()
            return len(node.answers)

        assert nodes.run(2, body) == [50] * 2

    def test_answers_come_in_any_order(self, nodes):
        def body(node):
            held = []

            def handle(peer, message):
                held.append(message)
                if len(held) == 10:
                    for each in reversed(held):
                        node.answer(peer, each, head=each.head)

            node.handle = handle
            node.meet()
            if node.me == 0:
                calls = [node.ask(1, True, head=b"%d" % i) for i in range(10)]
                heads = [node.wait(1, call).head for call in calls]
            node.meet()
            return heads if node.me == 0 else None

        assert nodes.run(2, body)[0] == [b"%d" % i for i in range(10)]

    def test_many_threads_call_at_once(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            done, wrong = [], []

            def caller(i):
                for j in range(20):
                    said = b"%d.%d" % (i, j)
                    size = 10 if j % 5 else 60_000
                    came = node.call(1 - node.me, head=said, arrays=[np.full(size, i * 100 + j)])
                    if came.head != said or set(came.arrays[0].tolist()) != {i * 100 + j}:
                        wrong.append(said)
                done.append(i)

            for i in range(6):
                context.start_thread(lambda i=i: caller(i), f"caller-{i}")
            node.until(lambda: len(done) == 6)
            node.meet()
            return wrong

        assert nodes.run(2, body) == [[], []]

    def test_who_waits_may_come_before_who_asks(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            if node.me == 0:
                block, calls = node.endpoint.waiting(1), []
                context.start_thread(lambda: calls.append(node.ask(1, payload=b"late")), "asks")
                node.until(lambda: calls and calls[0] in node.answers, block=block)
            node.meet()
            return "ok"

        assert nodes.run(2, body) == ["ok"] * 2

    def test_a_callback_may_call(self, nodes):
        """What handles an answer may wait for another one, on ``waiting``."""

        def body(node):
            found = []

            def on_answer(peer, message):
                if message.head == b"first":
                    found.append(node.call(peer, head=b"second").head)

            node.handle, node.on_answer = node.echo, on_answer
            node.meet()
            first = node.ask(1 - node.me, True, head=b"first")
            others = [node.ask(1 - node.me) for _ in range(5)]
            answer = node.wait(1 - node.me, first)
            for call in others:
                node.wait(1 - node.me, call)
            node.until(lambda: found)
            node.meet()
            return answer.head, found

        assert nodes.run(2, body) == [(b"first", [b"second"])] * 2

    def test_what_cannot_be_sent_is_refused_and_the_rest_goes_on(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            if node.me == 0:
                with pytest.raises(MessageTooLarge, match=r"1000001 bytes of payload.*1000000"):
                    node.ask(1, payload=bytes(1_000_001))
                with pytest.raises(MessageTooLarge, match=r"head_bytes"):
                    node.ask(1, head=bytes(1001))
                with pytest.raises(MessageTooLarge, match=r"11 arrays; at most 10 \(arrays\)"):
                    node.ask(1, arrays=[np.zeros(1)] * 11)
                with pytest.raises(MessageTooLarge, match=r"message_bytes"):
                    node.ask(1, arrays=[np.zeros(1_000_000)])
                with pytest.raises(ConfigError, match="not contiguous"):
                    node.ask(1, arrays=[np.zeros((3, 3)).T])
                with pytest.raises(DTypeError, match="dtype"):
                    node.ask(1, arrays=[np.array(["text"])])
                with pytest.raises(CommError, match="worker 77 is not known"):
                    node.ask(77)
                assert node.call(1, head=b"still").head == b"still"
            node.meet()
            return "ok"

        limits = Limits(
            message_bytes=2_000_000, payload_bytes=1_000_000, head_bytes=1000, arrays=10
        )
        assert nodes.run(2, body, limits) == ["ok"] * 2

    def test_a_peer_that_closes_is_lost(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            if node.me == 1:
                node.call(0)
                node.meet()
                node.endpoint.close()
                node.meet()
                return None
            node.call(1)
            node.meet()
            node.until(lambda: 1 in node.lost)
            with pytest.raises(PeerFailed) as error:
                node.ask(1)
            node.meet()
            return error.value.rank, str(error.value) == str(node.lost[1]), len(node.lost)

        assert nodes.run(2, body)[0] == (1, True, 1)

    def test_a_lost_peer_keeps_nothing_of_who_is_told(self, nodes):
        """An exception holds the frames that it went through, and they hold what is in them."""

        def body(node):
            node.handle = node.echo
            node.meet()
            if node.me == 1:
                node.meet()
                node.endpoint.close()
                return None
            node.call(1)
            node.meet()
            node.until(lambda: 1 in node.lost)

            def ask():
                held = np.zeros(1)
                told.append(weakref.ref(held))
                node.ask(1)

            told = []
            for _ in range(2):
                with pytest.raises(PeerFailed):
                    ask()
            gc.collect()
            return [ref() for ref in told]

        assert nodes.run(2, body)[0] == [None, None]

    def test_who_waits_learns_that_the_peer_is_lost(self, nodes):
        def body(node):
            held = []
            node.handle = lambda peer, message: held.append(message)
            node.meet()
            if node.me == 1:
                node.until(lambda: held)
                node.endpoint.close()
                return None
            with pytest.raises(PeerFailed, match="rank 1 failed"):
                node.call(1)
            return "ok"

        assert nodes.run(2, body)[0] == "ok"

    def test_what_was_sent_before_the_end_arrives(self, nodes):
        def body(node):
            if node.me == 0:
                for i in range(30):
                    node.endpoint.send(1, Message(2, 0, head=b"%d" % i, arrays=[np.zeros(9000)]))
                node.endpoint.disconnect(1)
                node.meet()
                return None
            node.until(lambda: 0 in node.lost)
            node.until(lambda: len(node.got) == 30)
            node.meet()
            return sorted(int(m.head) for _, m in node.got)

        assert nodes.run(2, body)[1] == list(range(30))

    def test_after_disconnecting_one_may_connect_again(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            if node.me == 0:
                node.call(1)
                address = node._shared["addresses"][1]
                node.endpoint.disconnect(1)
                assert not node.lost
                node.endpoint.connect(1, address)
                assert node.call(1, head=b"again").head == b"again"
            node.meet()
            return "ok"

        assert nodes.run(2, body) == ["ok"] * 2

    def test_a_closed_endpoint_refuses(self, nodes):
        def body(node):
            node.endpoint.close()
            node.endpoint.close()
            for act in (
                lambda: node.ask(0),
                lambda: node.endpoint.connect(0, "x"),
                lambda: node.endpoint.waiting(0),
            ):
                with pytest.raises(CommError, match="closed"):
                    act()
            return "ok"

        assert nodes.run(1, body) == ["ok"]

    def test_a_handler_that_raises_harms_nobody(self, nodes, caplog):
        def body(node):
            def handle(peer, message):
                if message.head == b"bad":
                    raise ValueError("on purpose")
                node.echo(peer, message)

            node.handle = handle
            node.meet()
            node.ask(1 - node.me, head=b"bad")
            answer = node.call(1 - node.me, head=b"good")
            node.meet()
            return answer.head

        assert nodes.run(2, body) == [b"good"] * 2
        assert "on purpose" in caplog.text
