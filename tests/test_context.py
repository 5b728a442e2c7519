"""What belongs to a rank and to a thread; waits, with the clock in the hands of the test."""

from __future__ import annotations

import threading

import pytest

from disttrain import context
from disttrain.context import PLAIN, RECORD, SLOW, Rank, Waiter
from disttrain.errors import PeerFailed, WaitTimeout


class Clock(Waiter):
    """A waiter whose time passes only where the test lets it."""

    spins = 0

    def __init__(self, at=100.0):
        super().__init__()
        self.at = at
        self.blocks = []

    def now(self):
        return self.at

    def block(self, seconds):
        """Sleeps as long as it may."""
        self.blocks.append(seconds)
        self.at += seconds


def never():
    return False


def test_a_wait_that_is_over_asks_nothing():
    waiter = Clock()
    waiter.interrupts.append(lambda: pytest.fail("asked"))
    waiter.wait_until(lambda: True, lambda: pytest.fail("described"), 0.0, waiter.block)
    waiter.wait_until(lambda: True, lambda: pytest.fail("described"), 0.0)
    assert waiter.blocks == []


def test_a_deadline_ends_a_wait_and_says_what_was_awaited():
    waiter = Clock()
    with pytest.raises(WaitTimeout, match=r"^waited 1\.\d s for rank 3; the deadline passed"):
        # a block that is woken a little late, as those of the system are
        waiter.wait_until(never, lambda: "rank 3", 1.0, lambda s: waiter.block(s + 0.01))
    assert max(waiter.blocks) <= waiter.look_every + 0.02
    assert len(waiter.blocks) == pytest.approx(10, abs=1)


def test_a_block_never_sleeps_past_the_deadline():
    waiter = Clock()
    with pytest.raises(WaitTimeout):
        waiter.wait_until(never, lambda: "", 0.25, lambda s: waiter.block(s or 0.001))
    assert waiter.blocks[:2] == [pytest.approx(0.1), pytest.approx(0.1)]
    assert waiter.blocks[2] == pytest.approx(0.05)


def test_no_timeout_is_the_default_one():
    waiter = Clock()
    waiter.away = float("inf")
    with pytest.raises(WaitTimeout):
        waiter.wait_until(never, lambda: "", None, lambda s: waiter.block(90.0))
    assert len(waiter.blocks) * 90 > context.DEFAULT_TIMEOUT >= (len(waiter.blocks) - 1) * 90


def test_time_for_which_the_process_was_stopped_does_not_count():
    waiter = Clock()
    stops = iter([60.0, 60.0])

    def block(seconds):
        waiter.block(next(stops, seconds + 0.001))

    with pytest.raises(WaitTimeout, match=r"waited 12[12]\.\d s"):
        waiter.wait_until(never, lambda: "", 1.0, block)
    assert waiter.at - 100 == pytest.approx(121, abs=0.3)


def test_an_interrupt_ends_a_wait_before_its_deadline():
    waiter = Clock()

    def dead():
        raise PeerFailed(1, "killed")

    waiter.interrupts.append(dead)
    for block in (waiter.block, None):
        with pytest.raises(PeerFailed):
            waiter.wait_until(never, lambda: "", 5.0, block)
    assert waiter.blocks == []


def test_a_wait_without_block_looks_again_and_again():
    waiter = Clock()
    asked = iter([False] * 40 + [True])
    waiter.wait_until(lambda: next(asked), lambda: "", 5.0)
    assert list(asked) == []


def test_a_wait_without_block_ends_at_its_deadline():
    waiter = Clock()

    def ready():
        waiter.at += 0.1  # time passes while we look
        return False

    with pytest.raises(WaitTimeout, match="for the others"):
        waiter.wait_until(ready, lambda: "the others", 3.0)
    assert 3.0 < waiter.at - 100 < 3.0 + 2 * 16 * 0.1


def test_a_slot_is_made_once_and_what_is_made_may_ask_for_others():
    rank, made = Rank(), []

    def outer():
        made.append(1)
        return [rank.slot("inner", dict)]

    assert rank.slot("outer", outer) is rank.slot("outer", outer)
    assert made == [1] and rank.slots["outer"][0] is rank.slots["inner"]


def test_a_slot_is_one_object_for_threads_that_ask_at_once():
    rank, barrier, got = Rank(), threading.Barrier(4), []

    def ask():
        barrier.wait()
        got.append(rank.slot("x", object))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(got) == 4 and len(set(map(id, got))) == 1


def test_numbers_are_read_and_written_together():
    rank = Rank(3, 8, 1, 2)
    assert rank.numbers == (3, 8, 1, 2)
    rank.numbers = 0, 4, 2, 3
    assert (rank.rank, rank.world_size, rank.local_rank, rank.local_world_size) == (0, 4, 2, 3)


def test_the_end_looks_after_each_thing_once():
    rank, seen = Rank(), []
    rank.at_end += [lambda: seen.append("a"), lambda: seen.append("b")]
    rank.end()
    rank.end()
    assert seen == ["a", "b"]


def test_attach_goes_back_also_after_an_error():
    before, rank = context.current(), Rank(2, 3)
    with pytest.raises(KeyError):
        with context.attach(rank):
            assert context.current() is rank
            raise KeyError
    assert context.current() is before


def test_the_clock_and_the_waits_are_the_attached_rank_s():
    waiter = Clock(7.0)
    with context.attach(Rank(waiter=waiter)):
        assert context.now() == 7.0
        with pytest.raises(WaitTimeout, match="me"):
            context.wait_until(never, lambda: "me", 0.5, lambda s: waiter.block(s + 0.001))


def test_a_thread_that_is_started_belongs_to_the_rank_of_its_starter():
    rank, seen, done = Rank(5, 6), [], threading.Event()

    def body():
        seen.append((context.current(), threading.current_thread().name))
        done.set()

    with context.attach(rank):
        context.start_thread(body, "helper")
    assert done.wait(30) and seen == [(rank, "helper")]


def test_other_threads_belong_to_the_rank_of_the_process():
    seen = []
    with context.attach(Rank(5, 6)):
        other = threading.Thread(target=lambda: seen.append(context.current()))
        other.start()
        other.join()
    assert seen == [context.current()]


def test_elsewhere_goes_on_from_this_thread_s_state():
    rank = Rank(1, 2)
    with context.attach(rank):
        there = context.elsewhere(lambda: (context.current(), threading.get_ident()))
        assert there[0] is rank and there[1] != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            context.elsewhere(lambda: 1 // 0)


@pytest.mark.parametrize(
    "field, value, mode",
    [
        ("grad_enabled", False, PLAIN),
        ("anomaly", True, SLOW),
        ("saving", ((abs, abs),), SLOW),
        ("inside", object(), SLOW),
        ("autocast", object(), SLOW),
        ("stack", [object()], SLOW),
        ("inference", True, RECORD),  # only told
    ],
)
def test_the_mode_follows_from_the_fields(field, value, mode):
    thread = context.thread
    before = getattr(thread, field)
    setattr(thread, field, value)
    try:
        thread.refresh()
        assert thread.mode == mode
    finally:
        setattr(thread, field, before)
        thread.refresh()
    assert thread.mode == RECORD


def test_an_interpreter_is_on_the_stack_while_its_block_runs():
    outer, inner = object(), object()
    with pytest.raises(KeyError):
        with context.interpreter(outer), context.interpreter(inner) as given:
            assert given is inner and context.thread.stack == [outer, inner]
            assert context.thread.mode == SLOW
            raise KeyError
    assert context.thread.stack == [] and context.thread.mode == RECORD


def test_a_setup_runs_on_this_thread_and_on_those_that_start_later(monkeypatch):
    monkeypatch.setattr(context, "_at_start", list(context._at_start))
    seen = []
    context.at_thread_start(lambda: seen.append(threading.get_ident()))
    assert seen == [threading.get_ident()]
    other = threading.Thread(target=lambda: context.thread.depth)
    other.start()
    ident = other.ident
    other.join()
    assert seen == [threading.get_ident(), ident]


def test_a_forked_process_begins_anew_and_lets_go_of_nothing():
    """On a thread of its own, with a rank of its own: this process is no child."""
    rank = Rank(3, 4, 1, 2, Clock())
    kept = rank.slot("group", object)
    waiter, seen = rank.waiter, []

    def child():
        with context.attach(rank):
            context.thread.grad_enabled = False
            process = context._process_rank
            context._process_rank = rank
            try:
                context.begin_anew()
            finally:
                context._process_rank = process
            seen.append(context.thread.grad_enabled)

    other = threading.Thread(target=child)
    other.start()
    other.join()
    assert seen == [True] and rank.numbers == (0, 1, 0, 1)
    assert type(rank.waiter) is Waiter and set(rank.slots) == {"context.inherited"}
    assert rank.slots["context.inherited"] == (waiter, {"group": kept})
