"""Runs workers of a conformance test as threads of this process, each in a rank of its own."""

from __future__ import annotations

import threading
import traceback

from rpc.messages.conformance import Node

from disttrain import context

TOKEN = bytes(range(32))


class Threads:
    """``make(me, token, limits)``: a fresh endpoint."""

    def __init__(self, make):
        self._make = make

    def run(self, n, fn, limits=None):
        shared, results, failed = {}, [None] * n, []

        def stop():
            if failed:
                raise RuntimeError("another worker of the test failed")

        def work(me):
            rank = context.Rank(me, n, me, n)
            rank.waiter.interrupts.append(stop)
            with context.attach(rank):
                try:
                    with self._make(me, TOKEN, limits) as endpoint:
                        node = Node(me, n, endpoint, shared)
                        node.start()
                        results[me] = fn(node)
                except BaseException as error:
                    failed.append((error, traceback.format_exc()))

        threads = [threading.Thread(target=work, args=(me,), daemon=True) for me in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(55)
        assert not any(t.is_alive() for t in threads), "a worker of the test hangs"
        if failed:
            raise AssertionError(failed[0][1]) from failed[0][0]
        return results
