"""Errors that are kept: what they are copies of, and that they keep no frame and so no reference of
what other workers have."""

import gc
import traceback

import pytest

from disttrain import context, rpc
from disttrain.errors import PeerFailed
from disttrain.rpc.api import current_agent
from disttrain.rpc.calls import kept_errors
from disttrain.rpc.calls.failures import pack_failure, unpack_failure
from disttrain.rpc.calls.packing import Packer
from disttrain.rpc.calls.workers import WorkerInfo
from disttrain.rpc.rref_part import part_of
from support.workers import simulate_workers

pytestmark = pytest.mark.simulated


class Odd(Exception):
    """Takes what it does not show, and says more than it was given."""

    def __init__(self, code, *, extra):
        super().__init__(f"bad: {code}")
        self.code, self.extra = code, extra


class Counted(ValueError):
    made = 0

    def __init__(self, text):
        Counted.made += 1
        super().__init__(text)


class Uncopied(Exception):
    def __new__(cls, a, b):
        return super().__new__(cls, a, b)

    def __str__(self):
        return "one of two"

    def __init__(self, a, b):
        super().__init__(a)


def raised(error, cause=None):
    try:
        if cause is None:
            raise error
        raise error from cause
    except BaseException as caught:
        return caught


def undecodable():
    try:
        b"\xff".decode("utf-8")
    except UnicodeDecodeError as error:
        return error


ERRORS = {
    "plain": lambda: ValueError("a", 2),
    "odd": lambda: Odd(3, extra=[1]),
    "counted": lambda: Counted("x"),
    "two arguments": lambda: Uncopied(1, 2),
    "key": lambda: KeyError("k"),
    "file": lambda: OSError(2, "No such file", "a.txt"),
    "bytes": undecodable,
    "import": lambda: ImportError("no", name="m", path="p"),
    "exit": lambda: SystemExit(3),
    "stop": lambda: StopIteration(7),
    "peer": lambda: PeerFailed(1, "gone", "", "here"),
    "group": lambda: ExceptionGroup("two", [raised(ValueError("a")), raised(Odd(1, extra=2))]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_kept_error_is_the_same_but_for_its_frames(name):
    first = raised(ERRORS[name](), cause=raised(KeyError("cause")))
    made = Counted.made
    once = kept_errors.keep(first)
    thrice = kept_errors.keep(
        raised(kept_errors.again(kept_errors.keep(raised(kept_errors.again(once)))))
    )
    assert Counted.made == made  # no code of the program's class has run
    for error in (once, thrice):
        assert type(error) is type(first) and str(error) == str(first) and error is not first
        for each in (error, *getattr(error, "exceptions", ())):
            assert each.__traceback__ is each.__cause__ is each.__context__ is None
        told = "".join(traceback.format_exception(error))
        assert told.count("KeyError: 'cause'") == 1 and "in raised" in told
        for field in ("code", "extra", "filename", "errno", "name", "path", "value", "rank", "end"):
            if hasattr(first, field):
                assert getattr(error, field) == getattr(first, field)
    assert first.__traceback__ is not None and not hasattr(first, "__notes__")


def test_an_error_that_cannot_be_copied_is_kept_itself():
    class Single(Exception):
        def __new__(cls):
            return super().__new__(cls)

        def __str__(self):
            return f"{id(self)}"

    error = kept_errors.keep(raised(Single(), cause=raised(KeyError("cause"))))
    assert isinstance(error, Single) and error.__traceback__ is error.__cause__ is None


def test_who_calls_is_told_where_a_kept_error_was_raised_and_gets_the_program_s_notes_only():
    first = Odd(1, extra=2)
    first.add_note("of the program")
    worker = WorkerInfo("w", 0)
    error = raised(kept_errors.again(kept_errors.keep(raised(first))))
    there = unpack_failure(pack_failure(worker, error), Packer())
    assert there.__notes__ == ["of the program"] and there.extra == 2
    assert str(there).count("in raised") == 2 and "bad: 1" in str(there)
    further = raised(kept_errors.again(kept_errors.keep(raised(there))))
    assert str(unpack_failure(pack_failure(worker, further), Packer())).count("in raised") == 4


_given = {}


def _fail_with(rref):
    raise ValueError("this frame has the reference")


def _fail_when_given(rank):
    context.wait_until(lambda: rank in _given, lambda: "a reference", 5.0)
    rref = _given.pop(rank)
    raise ValueError(f"this frame has {rref}")


def _give(rank, rref):
    _given[rank] = rref


def _kept():
    part = part_of(current_agent())
    part.take()
    return len(part.protocol.entries) + len(part.protocol.users)


@pytest.mark.parametrize("waits", [False, True])
def test_values_that_could_not_be_made_do_not_keep_each_other(waits):
    def body(rank):
        if rank == 0:
            first = rpc.remote(1, _fail_when_given, (1,))
            second = rpc.remote(0, _fail_with, (first,))
            rpc.rpc_sync(1, _give, (1, second))
            for rref in (first, second) if waits else ():
                for _ in range(2):
                    with pytest.raises(ValueError, match="this frame has"):
                        rref.to_here()
            first = second = rref = None
            end = context.now() + 2.0
            while _kept() or rpc.rpc_sync(1, _kept):
                gc.collect()
                assert context.now() < end, "they are still there"
                context.sleep(0.05)
        return True

    assert simulate_workers(2, body) == [True, True]
