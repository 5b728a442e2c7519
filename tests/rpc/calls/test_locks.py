"""Blocks that take turns."""

from __future__ import annotations

import threading
import time

from disttrain.rpc.calls.locks import one_at_a_time


def test_blocks_of_one_key_take_turns_and_may_be_nested():
    inside, most = 0, []

    def work():
        nonlocal inside
        with one_at_a_time("test.locks", "the others"), one_at_a_time("test.locks", "itself"):
            inside += 1
            most.append(inside)
            time.sleep(0.002)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert most == [1] * 8


def test_other_keys_do_not_wait():
    entered = threading.Event()

    def other():
        with one_at_a_time("test.locks.other", "nobody"):
            entered.set()

    with one_at_a_time("test.locks", "nobody"):
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(10)
        thread.join()


def test_an_error_gives_the_turn_on():
    for _ in range(2):
        try:
            with one_at_a_time("test.locks", "nobody"):
                raise KeyError
        except KeyError:
            pass
