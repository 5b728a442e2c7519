"""Several threads of a rank at its links, and what ranks hear of one that ends."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from comm.transports.tcp.victim import Victim

from disttrain import context
from disttrain.comm.transports.shm.channel import FINISHED
from disttrain.comm.transports.tcp import frames
from disttrain.errors import PeerFailed
from support.hosts import host_outcomes, run_hosts


def test_who_sleeps_is_woken_by_the_thread_that_has_taken_what_came():
    with Victim() as victim:
        net, me = victim.net, threading.get_ident()
        turns = []

        def other():
            victim.sock.sendall(frames.PULSE_FRAME)
            while not turns:
                turns.extend(net._epoll.poll(1))
            net.advance()

        def ready():
            if me in net._asleep and not turns:  # between this look and the sleep
                thread = threading.Thread(target=other)
                thread.start()
                thread.join()
            return False

        net._in_vain = 1000  # no spinning
        net.block(1000, ready)
        assert turns and not net._asleep
        net.block(0.01, lambda: False)  # the bell rings once
        assert net._epoll.poll(0) == []


@pytest.mark.parametrize("has_mates", [False, True])
def test_who_waits_at_links_that_are_given_up_goes_on(has_mates):
    """Its next look says that the group was left."""
    with Victim() as victim:
        net = victim.net
        net._mates, net._in_vain = has_mates, 0 if has_mates else 1000
        bell = net._bell

        def ready():
            thread = threading.Thread(target=net.abandon)
            thread.start()
            thread.join()
            if not has_mates:
                os.fstat(bell)  # not given back while it is asleep
            return False

        net.block(30, ready)
        assert net._events == []
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(bell)


def test_what_is_published_while_another_thread_tells_is_told_next():
    def body(group):
        channel, hub = group.transport.channel, group.transport.hub
        group.all_reduce(np.ones(3))
        put = hub.put

        def put_while_its_thread_goes_on(*args):
            put(*args)
            channel.publish(FINISHED, channel.seq)

        hub.put = put_while_its_thread_goes_on
        channel.flush()
        hub.put = put
        found = channel in hub.net.dirty
        group.barrier()
        return found

    assert run_hosts("ab", body) == [True, True]


def test_who_has_found_a_failure_tells_other_hosts_before_it_ends_of_it():
    """Else they would take it for the one that has failed."""
    read, write = os.pipe()

    def body(group):
        group.all_reduce(np.ones(3))
        if group.rank == 2:
            os.read(read, 1)
            return None
        if group.rank == 1:
            group.transport.hub.segment.publish_failure(2, "it is stopped")
        try:
            group.all_reduce(np.ones(3))
        except PeerFailed as error:
            if group.rank == 1:
                os._exit(1)
            os.write(write, b"x")
            return error.rank, error.cause
        raise AssertionError("nobody has failed")

    try:
        outcomes = host_outcomes("abb", body, job=False)
        assert outcomes[0].value == (2, "it is stopped"), outcomes
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("hosts", ["aab", "abab"])
def test_a_rank_whose_program_has_ended_is_missed_at_once(hosts):
    """Not when all have looked for long enough at a wait that nobody can end."""
    last = len(hosts) - 1

    def body(group):
        group.transport.hub.detector.looks = 1000
        group.all_reduce(np.ones(3))
        if group.rank == last:
            context.current().end()
            os._exit(3)
        with pytest.raises(PeerFailed) as error:
            group.all_reduce(np.ones(3))
        return error.value.rank

    outcomes = host_outcomes(hosts, body, job=False)
    assert [o.value for o in outcomes[:last]] == [last] * last, outcomes


@pytest.mark.parametrize("how", ["says so", "says nothing"])
def test_who_ends_since_it_misses_another_one_is_not_taken_for_the_first(how):
    """Whatever is heard first: ranks 0 and 2 never notice by themselves that rank 3 has ended."""

    def body(group):
        hub = group.transport.hub
        hub.detector.looks = 1000
        group.all_reduce(np.ones(3))
        if group.rank == 3:
            context.current().end()
            os._exit(3)
        if group.rank != 1:
            of_net = hub.net.has_ended
            heard = how == "says so"
            hub.detector.has_ended = lambda rank: heard and rank == 1 and of_net(rank)
        with pytest.raises(PeerFailed) as error:
            group.recv(np.ones(3), 3 if group.rank == 1 else 1, 0)
        if group.rank == 1 and how == "says so":
            context.current().end()
        return error.value.rank

    outcomes = host_outcomes("abab", body, job=False)
    assert [o.value for o in outcomes[:3]] == [3] * 3, outcomes


def test_what_a_rank_has_said_counts_though_sending_to_it_is_what_fails():
    with Victim() as victim:
        net, place = victim.net, victim.own[1].start
        victim.sock.sendall(frames.put(place, 3) + b"abc")
        victim.pipe.add(frames.PULSE_FRAME)
        net.go(victim.pipe)  # stays unread: the end of its socket breaks the connection
        victim.sock.close()
        while 1 not in net.gone:
            victim.pipe.add(frames.PULSE_FRAME)
            net.go(victim.pipe)
        assert bytes(net._memory[place : place + 3]) == b"abc"


def test_a_rank_has_ended_when_all_of_this_host_have_heard_it_or_had_time_to(monkeypatch):
    with Victim() as victim:
        net, heard, now = victim.net, victim.own[0].stop - 3, [100.0]
        monkeypatch.setattr(context, "now", lambda: now[0])
        net.listen_with({0: heard, 2: heard})
        net._memory[heard : heard + 3] = bytes(3)
        net.gone[1] = (100.0, "it was closed")
        now[0] += 0.5
        assert not net.has_ended(1)
        net._memory[heard + 1] = 1
        assert net.has_ended(1)
        net._memory[heard + 1] = 0
        now[0] += 0.6
        assert net.has_ended(1)
