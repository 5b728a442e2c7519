"""Exceptions of another worker."""

import functools
import pickle
import sys

import pytest

from disttrain.errors import PeerFailed, RemoteError, UnknownName
from disttrain.rpc.calls.failures import pack_failure, unpack_failure
from disttrain.rpc.calls.packing import Packer
from disttrain.rpc.calls.workers import WorkerInfo

THERE = WorkerInfo("worker1", 1)


class NeedsTwo(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)
        self.a = a


class Odd(Exception):
    def __init__(self, text):
        raise TypeError("cannot be made twice")

    @classmethod
    def made(cls):
        return Exception.__new__(cls)


class Mute(ValueError):
    def __str__(self):
        return str(self.missing)


def remote(error):
    """What a caller gets when ``error`` is raised on worker1."""
    try:
        raise error
    except BaseException as raised:
        payload = pack_failure(THERE, raised)
    return unpack_failure(payload, Packer())


@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError, StopIteration, ZeroDivisionError])
def test_the_type_and_the_text(kind):
    got = remote(kind("bad input"))
    assert type(got) is kind
    text = got.args[0]
    assert text.startswith(f"On WorkerInfo(id=1, name=worker1):\n{kind.__name__}('bad input')\n")
    assert "Traceback" in text and "raise error" in text


def test_types_that_need_more_than_a_text_are_also_runtime_errors():
    got = remote(NeedsTwo(1, 2))
    assert isinstance(got, NeedsTwo) and isinstance(got, RuntimeError)
    assert type(got).__name__ == "NeedsTwo" and got.a == 1
    assert "Failed to create original exception type" in str(got)
    assert "Original exception on remote side was On WorkerInfo(id=1" in str(got)
    assert isinstance(remote(Odd.made()), Odd)


def test_a_failure_can_be_passed_on():
    first = remote(NeedsTwo(1, 2))
    again = remote(first)
    assert isinstance(again, NeedsTwo) and "NeedsTwo" in str(again)
    assert isinstance(pickle.loads(pickle.dumps(first)), NeedsTwo)


def test_types_whose_text_fails():
    got = remote(Mute("x"))
    assert isinstance(got, Mute) and "worker1" in str(got)


def test_errors_of_this_package():
    got = remote(PeerFailed(3, "killed by SIGKILL"))
    assert type(got) is PeerFailed and got.rank == 3
    assert str(got).startswith("On WorkerInfo(id=1, name=worker1):\nPeerFailed(")
    assert "rank 3 failed: killed by SIGKILL" in str(remote(got)) and remote(got).rank == 3


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_would_end_the_caller_becomes_an_error(kind):
    got = remote(kind(3))
    assert isinstance(got, RemoteError) and kind.__name__ in str(got)


def test_types_that_are_not_here():
    class Local(ValueError):
        pass

    got = remote(Local("inside"))
    assert isinstance(got, RemoteError) and "Local('inside')" in str(got)


def test_failures_name_only_what_is_allowed():
    evil = pickle.dumps(functools.partial(eval, "1"))
    with pytest.raises(UnknownName):
        unpack_failure(evil, Packer(allowed=[]))
    payload = pickle.dumps(("this", "NoSuch", "text", evil))
    before = set(sys.modules)
    assert str(unpack_failure(payload, Packer(allowed=[]))) == "text"
    assert "this" not in set(sys.modules) - before
    payload = pickle.dumps(("builtins", "ValueError", "text", evil))
    assert type(unpack_failure(payload, Packer(allowed=[]))) is ValueError


def test_attributes_that_cannot_be_pickled_stay_there():
    error = ValueError("x")
    error.lock = lambda: 1
    assert type(remote(error)) is ValueError
    error = ValueError("x")
    error.code = 7
    assert remote(error).code == 7
