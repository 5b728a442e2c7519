"""Threads of one rank on groups: in turns on one, at once on several, messages at any time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.errors import CommError
from disttrain_launcher import launch

COUNTS = (3, 20_000)  # a small payload and a ring of chunks


def on_two_ranks(body):
    def whole():
        dist.init_process_group("gloo")
        body()
        dist.destroy_process_group()

    launch(whole, 2)


def in_threads(*bodies):
    """Run each body on a thread of its own; their results."""
    me = context.current()

    def run(body):
        with context.attach(me):
            return body()

    with ThreadPoolExecutor(len(bodies)) as pool:
        return [found.result() for found in [pool.submit(run, body) for body in bodies]]


def sums(group, base, rounds=15):
    for k in range(rounds):
        x = dt.full((COUNTS[k % 2],), float(base + k))
        dist.all_reduce(x, group=group)
        assert x[0].item() == x[-1].item() == dist.get_world_size() * (base + k)


def test_each_thread_on_a_group_of_its_own():
    def body():
        groups = [dist.new_group() for _ in range(3)]
        in_threads(*[lambda g=g, i=i: sums(g, 100 * i) for i, g in enumerate(groups)])
        sums(None, 7)

    on_two_ranks(body)


def test_threads_take_turns_on_one_group():
    def body():
        turn = threading.Condition()
        at = 0

        def work(i):
            nonlocal at
            for k in range(i, 20, 2):
                with turn:
                    assert turn.wait_for(lambda: at == k, 20)  # noqa: B023
                    work = dist.all_reduce(x := dt.full((5,), float(k)), async_op=True)
                    at = k + 1
                    turn.notify_all()
                work.wait()  # beside the other thread's next call
                assert x.tolist() == [2.0 * k] * 5

        in_threads(lambda: work(0), lambda: work(1))
        sums(None, 3)

    on_two_ranks(body)


def test_a_thread_in_the_middle_of_anothers_collective_gets_an_error_and_the_other_its_result():
    def body():
        started, refused = threading.Event(), []
        x = dt.full((4,), 1.0)

        def first():
            started.set()
            dist.all_reduce(x)
            return x.tolist()

        def second():
            started.wait(20)
            while not refused:  # until the other one is within its call
                if main_is_in_collective():
                    with pytest.raises(
                        CommError,
                        match=r"all_gather was called in thread .* is in all_reduce.*one order",
                    ):
                        dist.all_gather([dt.zeros(1), dt.zeros(1)], dt.ones(1))
                    refused.append(True)
            dist.send(dt.ones(1), 1)  # lets the peer come to the collective

        def main_is_in_collective():
            calls = dist.group.WORLD._calls
            return calls._running(calls._thread) is not None

        if dist.get_rank() == 0:
            found, _ = in_threads(first, second)
        else:
            dist.recv(dt.zeros(1), 0)
            found = first()
        assert found == [2.0] * 4
        sums(None, 5)

    on_two_ranks(body)


def test_a_thread_receives_while_another_reduces():
    def body():
        me, peer = dist.get_rank(), 1 - dist.get_rank()

        def listen():
            got = []
            for _ in range(20):
                dist.recv(x := dt.zeros(2), peer)
                got.append(x[0].item())
            return got

        def speak():
            for k in range(20):
                dist.send(dt.full((2,), float(me + k)), peer)
                sums(None, k, 2)

        found, _ = in_threads(listen, speak)
        assert found == [float(peer + k) for k in range(20)]

    on_two_ranks(body)
