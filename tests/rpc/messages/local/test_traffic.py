"""Local messages under random traffic, interruptions, few threads, and at the end of a program."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import textwrap
import threading
import traceback

import numpy as np
import pytest
from rpc.messages.nodes import TOKEN, Threads

from disttrain import context
from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.local.endpoint import LocalEndpoint


class Worker:
    """Answers every request with its arrays plus one, after calls of its own; checks answers."""

    def __init__(self, me, seed, size):
        self.rng = random.Random(seed * 100 + me)
        arena = self.rng.choice([0, 64 << 20, 1 << 34])
        self.me, self.size = me, size
        self.endpoint = LocalEndpoint(me, TOKEN, arena_bytes=arena)
        self.calls, self.answers, self.lost = itertools.count(1), {}, {}
        self.endpoint.serve(self.on_message, self.lost.__setitem__)

    def on_message(self, peer, message):
        if message.answers:
            self.answers[message.call] = message
            return
        depth, kind = message.head
        if kind == 1:
            context.sleep(0.003)
        if depth:
            self.call(self.rng.randrange(self.size), depth - 1)
        for array in message.arrays:
            array += 1
        self.endpoint.send(
            peer, Message(1, message.call, True, message.head, message.payload, message.arrays)
        )

    def call(self, peer, depth):
        rng = self.rng
        arrays = [
            np.full(rng.choice([0, 1, 50, 3000, 60_000]), rng.randrange(100), rng.choice("ifdh"))
            for _ in range(rng.choice([0, 0, 1, 3]))
        ]
        payload = bytes(rng.choice([0, 10, 1000, 70_000]))
        call, mode = next(self.calls), rng.randrange(3)
        head = bytes([depth, rng.randrange(3)])
        self.endpoint.send(peer, Message(1, call, False, head, payload, arrays), mode == 1)
        block = self.endpoint.waiting(peer, call if mode else 0)
        context.wait_until(
            lambda: call in self.answers or peer in self.lost, lambda: f"call {call}", 20, block
        )
        answer = self.answers.pop(call)
        assert answer.payload == payload and len(answer.arrays) == len(arrays)
        for sent, came in zip(arrays, answer.arrays):
            assert came.dtype == sent.dtype and np.array_equal(came, sent + 1)


@pytest.mark.parametrize("seed", range(4))
def test_random_traffic(seed):
    """Nested calls among three workers, from two threads of each, with and without shared memory:
    every answer is right, and all memory comes back."""
    workers = [Worker(me, seed, 3) for me in range(3)]
    for worker in workers:
        for other in workers:
            worker.endpoint.introduce(other.me, other.endpoint.address)
    failed, done = [], []

    def program(worker):
        try:
            for _ in range(12):
                worker.call(worker.rng.randrange(3), worker.rng.randrange(4))
        except BaseException:
            failed.append(traceback.format_exc())
        done.append(worker)

    for worker in workers * 2:
        threading.Thread(target=program, args=(worker,), daemon=True).start()
    context.wait_until(lambda: len(done) == 6, lambda: "the programs", 30)
    assert not failed, failed[0]
    for worker in workers:
        lender = worker.endpoint._lender
        context.wait_until(lambda at=lender: at.lent_bytes() == 0, lambda: "memory", 50)
    for worker in workers:
        worker.endpoint.close()


def test_a_wait_that_is_interrupted_leaves_the_reading_to_others():
    """Control-C while a caller reads: later answers are read all the same."""

    class Interrupt(Exception):
        pass

    def interrupt(*args):
        raise Interrupt

    held, answers = [], {}
    with LocalEndpoint(0, TOKEN) as caller, LocalEndpoint(1, TOKEN) as callee:
        callee.serve(lambda peer, message: held.append(message), lambda *lost: None)
        caller.serve(lambda peer, m: answers.__setitem__(m.call, m), lambda *lost: None)
        caller.connect(1, callee.address)
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            caller.send(1, Message(1, 1), True)
            block = caller.waiting(1, 1)
            signal.setitimer(signal.ITIMER_REAL, 0.03)
            with pytest.raises(Interrupt):
                context.wait_until(lambda: 1 in answers, lambda: "an answer", 50, block)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        callee.send(0, Message(1, 1, True))
        context.wait_until(lambda: 1 in answers, lambda: "an answer", 50)


def test_a_wait_with_a_short_deadline_keeps_it():
    with LocalEndpoint(0, TOKEN) as caller, LocalEndpoint(1, TOKEN) as callee:
        held, answers = [], {}
        callee.serve(lambda peer, message: held.append(message), lambda *lost: None)
        caller.serve(lambda peer, m: answers.__setitem__(m.call, m), lambda *lost: None)
        caller.connect(1, callee.address)
        caller.send(1, Message(1, 1), True)
        with pytest.raises(TimeoutError):
            context.wait_until(
                lambda: 1 in answers, lambda: "an answer", 0.01, caller.waiting(1, 1)
            )
        callee.send(0, Message(1, 1, True))
        context.wait_until(lambda: 1 in answers, lambda: "an answer", 50)


def test_no_more_threads_than_allowed_handle_messages():
    def body(node):
        running, most, opened = [], [], []

        def handle(peer, message):
            running.append(message)
            most.append(len(running))
            if message.head == b"wait":
                node.until(lambda: len(opened) or len(most) >= 3)
            running.remove(message)
            node.answer(peer, message)

        node.handle = handle
        node.meet()
        if node.me == 0:
            calls = [node.ask(1, head=b"wait") for _ in range(20)]
            node.until(lambda: set(calls) == set(node.answers))
        node.meet()
        return max(most, default=0)

    assert Threads(LocalEndpoint).run(2, body, Limits(threads=3))[1] <= 3


def test_a_program_that_ends_without_closing_ends_well():
    program = """
        from disttrain.rpc.messages.local.endpoint import LocalEndpoint
        from disttrain.rpc.messages.contract.message import Message
        import numpy as np
        ends = [LocalEndpoint(i, bytes(32)) for i in range(2)]
        got = []
        for end in ends:
            end.serve(lambda peer, message: got.append(message), lambda *lost: None)
        ends[0].connect(1, ends[1].address)
        ends[0].send(1, Message(0, 0, arrays=[np.zeros(100_000)]))
        ends[0].send(1, Message(1, 1, arrays=[np.zeros(100_000)]))
        while len(got) < 2:
            pass
        print("end")
    """
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")
