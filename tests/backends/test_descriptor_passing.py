"""Tickets for blocks of shared memory: shown once, by who has the secret, to who still lives."""

from __future__ import annotations

import os
import socket

import numpy as np
import pytest

from disttrain import context
from disttrain.backends import descriptor_passing as passing
from disttrain.backends.memory import Block, make_memory
from disttrain.errors import DisttrainError


@pytest.fixture
def block():
    made = Block(make_memory("test", 4096), 4096)
    made.array()[:3] = [1, 2, 3]
    return made


@pytest.fixture
def lender():
    return context.current().slot(passing._LENDER, passing.Lender)


def fds():
    return len(os.listdir("/proc/self/fd"))


def test_a_block_that_is_here_is_the_same_object_and_costs_no_descriptor(block, lender):
    function, ticket = passing.lend(block)
    assert function is passing.fetch and ticket[2] in lender.lent
    assert passing.fetch(*ticket) is block and ticket[2] not in lender.lent
    held = fds()
    for _ in range(3):
        assert passing.fetch(*passing.lend(block)[1]) is block
    assert fds() == held


def test_another_process_gets_the_same_memory_and_knows_it_again(block, lender):
    _, first = passing.lend(block)
    _, second = passing.lend(block)
    context.current().slots.pop(passing._KNOWN)  # as if these were received elsewhere
    there = passing.fetch(*first)
    assert there is not block and there.array()[:3].tolist() == [1, 2, 3]
    there.array()[0] = 9
    assert block.array()[0] == 9
    assert passing.fetch(*second) is there


def test_a_block_lives_while_it_is_lent(lender):
    made = Block(make_memory("test", 4096), 4096)
    made.array()[:2] = [5, 6]
    _, ticket = passing.lend(made)
    del made
    assert passing.fetch(*ticket).array()[:2].tolist() == [5, 6]


def test_a_ticket_is_good_once(block, lender):
    _, ticket = passing.lend(block)
    passing.fetch(*ticket)
    with pytest.raises(DisttrainError, match="its sender does not have it any more"):
        passing.fetch(*ticket)


def test_strangers_get_nothing(block, lender):
    _, (place, secret, number, size) = passing.lend(block)
    with pytest.raises(DisttrainError, match="does not have it"):
        passing.fetch(place, b"x" * 16, number, size)
    with pytest.raises(DisttrainError, match="does not have it"):
        passing.fetch(place, secret, number + 1, size)
    assert passing.fetch(place, secret, number, size) is block


def test_who_hangs_up_or_sends_half_a_ticket_stops_nobody(block, lender):
    for said in (b"", b"half"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.connect("\0" + lender.place)
            link.sendall(said)
    _, ticket = passing.lend(block)
    assert passing.fetch(*ticket) is block


def test_a_lender_that_is_gone_is_told_of():
    with pytest.raises(DisttrainError, match=r"cannot be reached .* must live until the tensor"):
        passing.fetch("disttrain-nobody", b"x" * 16, 0, 4096)


def test_a_child_holds_no_ticket_of_its_parent(block):
    lender = object.__new__(passing.Lender)  # as it is in a child: without its thread
    lender.listener, lender.lent = socket.socket(socket.AF_UNIX), {}
    lender.lent[0] = fd = os.dup(block.fd)
    with context.attach(context.Rank()) as rank:
        rank.slots[passing._LENDER] = lender
        passing._after_fork_in_child()
        assert passing._LENDER not in rank.slots and lender.listener.fileno() == -1
        with pytest.raises(OSError):
            os.fstat(fd)
        passing._after_fork_in_child()  # nothing was lent: nothing to forget


def test_lending_again_uses_another_number(block, lender):
    tickets = [passing.lend(block)[1] for _ in range(3)]
    assert len({t[2] for t in tickets}) == 3 and len({t[:2] for t in tickets}) == 1
    assert all(t[3] == np.asarray(block).nbytes for t in tickets)
    for ticket in reversed(tickets):
        assert passing.fetch(*ticket) is block
