"""What the launcher decides, by events and times alone."""

from __future__ import annotations

import signal

from disttrain_launcher.plan.policy import (
    GRACE,
    TERM_GRACE,
    Begin,
    Exit,
    Policy,
    Signal,
    overcome,
    root_cause,
)
from disttrain_launcher.plan.restarts import Restarts


def test_success_asks_for_nothing():
    policy = Policy(2)
    assert policy.exited(Exit(0, 0, at=1.0)) == [] and not policy.over
    assert policy.exited(Exit(1, 0, at=9.0)) == [] and policy.over
    assert policy.next_tick is None and not policy.failed


def test_a_failure_gives_grace_then_terminates_then_kills():
    policy = Policy(3)
    policy.exited(Exit(1, 137, at=10.0, signal=9))
    assert policy.tick(10.0 + GRACE / 2) == []
    assert policy.next_tick == 10.0 + GRACE
    assert policy.tick(10.0 + GRACE) == [Signal(signal.SIGTERM)]
    assert policy.tick(10.0 + GRACE + TERM_GRACE) == [Signal(signal.SIGKILL)]
    assert policy.tick(99.0) == [] and policy.failed
    assert GRACE + TERM_GRACE < 1.0


def test_where_many_wait_for_each_processor_the_grace_is_longer():
    policy = Policy(3, crowd=4.0)
    policy.exited(Exit(1, 1, at=10.0))
    assert policy.next_tick == 10.0 + 4 * GRACE
    policy = Policy(3, crowd=4.0)
    policy.supersede(10.0, patient=True)
    assert policy.next_tick == 10.0 + 4 * GRACE


def test_later_failures_do_not_prolong_the_grace():
    policy = Policy(3)
    policy.exited(Exit(1, 1, at=10.0))
    policy.exited(Exit(0, 1, at=10.2))
    assert policy.next_tick == 10.0 + GRACE


def test_a_signal_is_passed_on_and_followed_by_a_kill():
    policy = Policy(2, shutdown_timeout=5.0)
    assert policy.signalled(signal.SIGTERM, 1.0) == [Signal(signal.SIGTERM)]
    policy.exited(Exit(0, 143, at=1.5))
    assert policy.next_tick == 6.0  # a rank that obeys does not shorten the others' time
    assert policy.tick(6.0) == [Signal(signal.SIGKILL)]
    assert policy.stopped_by == signal.SIGTERM


def test_a_second_interrupt_kills_at_once():
    policy = Policy(2)
    policy.signalled(signal.SIGINT, 1.0)
    assert policy.signalled(signal.SIGINT, 1.1) == [Signal(signal.SIGKILL)]
    assert policy.stopped_by == signal.SIGINT


def test_what_a_scheduler_sends_to_every_process_is_one_signal_and_a_second_one_kills():
    policy = Policy(2)
    assert policy.signalled(signal.SIGTERM, 1.0) == [Signal(signal.SIGTERM)]
    assert policy.signalled(signal.SIGTERM, 1.2) == []
    assert policy.next_tick == 6.0  # and the time that ranks have is not longer
    assert policy.signalled(signal.SIGTERM, 3.0) == [Signal(signal.SIGKILL)]
    assert policy.stopped_by == signal.SIGTERM


def replacing(ranks: int, restarts: int = 9, **more) -> Policy:
    return Policy(ranks, min_ranks=1, anew=Restarts(restarts), **more)


def test_a_rank_is_started_anew_and_joins():
    policy = replacing(3)
    killed = Exit(1, 137, at=10.0, signal=9)
    assert policy.exited(killed, ran=5.0, operations=99) == [] and not policy.failed
    assert policy.next_tick == 10.0 and policy.tick(10.0) == [Begin(1)]
    assert policy.replaced == [killed] and policy.away == {1} and policy.next_tick is None
    policy.joined(1)
    for rank in range(3):
        assert policy.exited(Exit(rank, 0, at=20.0 + rank)) == []
    assert policy.over and not policy.failed


def test_one_that_fails_at_once_again_waits_longer_and_then_is_given_up():
    policy = replacing(2, restarts=3)
    for at, begins in ((10.0, 10.0), (20.0, 21.0), (30.0, 32.0)):
        policy.exited(Exit(1, 1, at=at), ran=0.2)
        assert policy.next_tick == begins and policy.tick(begins) == [Begin(1)]
    assert policy.exited(Exit(1, 1, at=40.0), ran=0.2) == []
    assert policy.next_tick is None and not policy.failed and not policy.over
    policy.exited(Exit(0, 0, at=50.0))
    assert policy.over and not policy.failed  # one is left, which is enough


def test_when_all_others_have_ended_nobody_is_awaited():
    policy = replacing(3)
    policy.exited(Exit(1, 137, at=1.0, signal=9), ran=0.1)
    policy.exited(Exit(2, 137, at=1.5, signal=9), ran=0.1)
    assert policy.tick(1.0) == [Begin(1)] and policy.away == {1, 2}
    assert policy.exited(Exit(0, 0, at=2.0)) == [Signal(signal.SIGKILL, 1)]
    policy.exited(Exit(1, 137, at=2.1, signal=9))
    assert policy.over and policy.next_tick is None
    assert overcome(policy.exits, members=[0], min_ranks=1) == {1, 2}


def test_a_failure_of_the_last_one_that_went_on_ends_the_generation():
    policy = replacing(2)
    policy.exited(Exit(1, 137, at=1.0, signal=9), ran=99.0)
    assert policy.tick(1.0) == [Begin(1)]
    policy.exited(Exit(0, 1, at=2.0))
    assert policy.failed and policy.tick(9.0)[-1] == Signal(signal.SIGKILL)
    policy.exited(Exit(1, 137, at=9.1, signal=9))
    assert policy.over


def test_who_waits_to_begin_anew_does_not_when_the_job_is_to_end():
    policy = replacing(2)
    for at in (1.0, 2.0):
        policy.exited(Exit(1, 1, at=at), ran=0.1)
        policy.tick(at)
    assert policy.next_tick == 3.0
    policy.signalled(signal.SIGTERM, 2.5)
    assert policy.tick(3.0) == [] and policy.exits == [Exit(1, 1, at=2.0)]
    policy.exited(Exit(0, 143, at=2.6, signal=15))
    assert policy.over


def test_ranks_of_a_dead_front_are_killed():
    assert Policy(2).orphaned() == [Signal(signal.SIGKILL)]


def test_the_root_cause_is_the_first_failure_that_is_no_echo():
    exits = [Exit(2, 1, at=3.0), Exit(0, 1, at=1.0), Exit(1, 139, at=2.0), Exit(3, 0, at=0.5)]
    assert root_cause(exits, echoes={0, 2}) == (exits[2], 139)
    assert root_cause(exits, echoes=set()) == (exits[1], 1)
    assert root_cause(exits, echoes={0, 1, 2}) == (exits[1], 1)
    assert root_cause([Exit(0, 0, at=1.0)], set()) == (None, 0)


def test_a_rank_that_vanished_is_the_cause_where_the_others_only_echo():
    exits = [Exit(2, 0, at=1.0), Exit(0, 1, at=2.0), Exit(1, 1, at=3.0)]
    assert root_cause(exits, echoes={0, 1}, vanished={2}) == (exits[0], 1)
    assert root_cause(exits, echoes={0}, vanished={2}) == (exits[2], 1)
    assert root_cause(exits[:1], set(), vanished={2}) == (None, 0)


def test_failures_are_borne_as_long_as_enough_ranks_are_left():
    policy = Policy(4, min_ranks=2)
    for at, rank in enumerate((1, 3)):
        policy.exited(Exit(rank, 137, at=float(at), signal=9))
        assert policy.next_tick is None and not policy.failed
    policy.exited(Exit(0, 1, at=5.0))
    assert policy.next_tick == 5.0 + GRACE and policy.failed


def test_what_the_last_members_have_overcome_is_no_failure():
    exits = [Exit(1, 137, at=1.0, signal=9), Exit(0, 0, at=2.0), Exit(2, 0, at=3.0)]
    assert overcome(exits, members=[0, 2], min_ranks=2) == {1}
    assert overcome(exits, members=[0, 2], min_ranks=3) == set()
    assert overcome(exits, members=[0, 1, 2], min_ranks=2) == {1}  # it was killed at its end
    raised = [Exit(1, 1, at=1.0), Exit(0, 0, at=2.0), Exit(2, 0, at=3.0)]
    assert overcome(raised, members=[0, 1, 2], min_ranks=2) == set()  # nobody went on without it
    assert overcome(raised, members=[0, 2], min_ranks=2) == {1}
    assert overcome(exits, members=[0, 2], min_ranks=0) == set()


def test_who_saves_has_time_unless_the_node_may_be_lost_for_the_others():
    policy = Policy(2, shutdown_timeout=30.0)
    assert policy.supersede(0.0, False, saving=True) == [Signal(signal.SIGTERM)]
    assert policy.tick(29.9) == [] and policy.next_tick == 30.0
    assert policy.fence() == [Signal(signal.SIGKILL)] and policy.fence() == []
    asked = Policy(2, shutdown_timeout=30.0)
    asked.signalled(signal.SIGTERM, 0.0)
    assert asked.fence() == [Signal(signal.SIGKILL)] and not asked.superseded


def test_ranks_of_other_nodes_count_too():
    policy = Policy(2, min_ranks=2, elsewhere=2)
    for rank in (0, 1):
        policy.exited(Exit(rank, 137, at=1.0 + rank, signal=9))
    assert policy.over and not policy.failed and policy.num_lost == 2
    assert overcome(policy.exits, [0, 1], 2, elsewhere=2) == {0, 1}
    assert overcome(policy.exits, [0, 1], 3, elsewhere=2) == set()
    assert overcome([Exit(0, 0, at=1.0), Exit(1, 137, at=1.0, signal=9)], [0, 1], 3, 2) == {1}


def test_too_few_are_left_when_others_are_lost_elsewhere():
    policy = Policy(2, min_ranks=3, elsewhere=2)
    policy.left_elsewhere(1, 1.0)  # all here are there: who has lost one decides
    assert policy.next_tick is None
    policy = Policy(2, min_ranks=3, elsewhere=2)
    policy.exited(Exit(0, 137, at=1.0, signal=9))
    assert not policy.failed and policy.next_tick is None
    policy.left_elsewhere(1, 2.0)
    assert policy.failed and policy.next_tick == 2.0 + GRACE
    policy.left_elsewhere(0, 3.0)
    assert policy.next_tick == 2.0 + GRACE


def test_without_a_least_number_ranks_elsewhere_change_nothing():
    policy = Policy(2, elsewhere=2)
    policy.left_elsewhere(1, 1.0)
    assert not policy.failed and policy.next_tick is None


def test_what_is_due_waits_while_somebody_looks_at_a_rank_and_no_longer():
    """However late it has become due: the rest of its time counts from when they have looked."""
    for failed_at in (5.0, 10.0 - GRACE / 2, 11.0, 599.9):  # time stands from 10 to 600
        policy = Policy(3)
        if failed_at < 10.0:
            policy.exited(Exit(1, 1, at=failed_at))
        policy.hold(10.0)
        if failed_at >= 10.0:
            policy.exited(Exit(1, 1, at=failed_at))
        assert policy.can_wait
        policy.go_on(600.0)
        assert abs(policy.next_tick - (600.0 + min(failed_at, 10.0) + GRACE - 10.0)) < 1e-9


def test_who_is_asked_to_end_is_killed_in_time_though_a_rank_was_in_the_debugger():
    policy = Policy(2, shutdown_timeout=5.0)
    policy.hold(10.0)
    policy.signalled(signal.SIGTERM, 600.0)
    assert not policy.can_wait
    policy.go_on(600.5)
    assert policy.next_tick == 605.0


def test_an_end_that_comes_from_elsewhere_waits_for_who_looks_at_a_rank():
    policy = Policy(2)
    policy.hold(10.0)
    for now in (20.0, 21.0):
        assert policy.supersede(now, patient=False, waits=True) == [] and policy.can_wait
    policy.go_on(100.0)
    assert policy.supersede(100.0, patient=False, waits=False) == [] and not policy.can_wait
    assert policy.tick(100.0) == [Signal(signal.SIGTERM)]
    assert policy.tick(100.0 + TERM_GRACE) == [Signal(signal.SIGKILL)]


def test_an_end_that_comes_from_elsewhere_waits_for_nobody_where_others_may_begin():
    policy = Policy(2)
    policy.hold(10.0)
    assert policy.supersede(20.0, patient=True, waits=True) == []
    assert policy.fence() == [Signal(signal.SIGKILL)] and not policy.can_wait
    policy = Policy(2)
    policy.hold(10.0)
    assert policy.supersede(20.0, patient=False, waits=False) == [Signal(signal.SIGTERM)]
    policy.supersede(21.0, patient=False, waits=True)
    assert not policy.can_wait, "it was ended already"
    policy.go_on(30.0)
    assert policy.next_tick == 20.0 + TERM_GRACE
