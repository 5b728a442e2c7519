"""The tree of exceptions: what can be caught as what, what survives a pickle, what a text says."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from disttrain import errors
from disttrain.errors import PeerFailed

OURS = {
    n: c for n, c in vars(errors).items() if inspect.isclass(c) and c.__module__ == errors.__name__
}

# What programs written for PyTorch, or for plain Python, catch these as.
CAUGHT_AS = {
    "ShapeError": (RuntimeError, ValueError),
    "DimError": (IndexError,),
    "DimKindError": (IndexError, TypeError),
    "DTypeError": (NotImplementedError, TypeError),
    "NumberError": (RuntimeError, ZeroDivisionError, ArithmeticError),
    "LinAlgError": (RuntimeError,),
    "HostError": (RuntimeError, TypeError),
    "ModuleNameError": (AttributeError, KeyError),
    "UninitializedError": (AttributeError, ValueError, RuntimeError),
    "HookError": (RuntimeError, AssertionError),
    "GroupError": (ValueError, AssertionError),
    "MissingSetting": (ValueError, KeyError),
    "WriteError": (OSError, ValueError),
    "OperatorError": (NotImplementedError, ValueError),
    "NodeError": (RuntimeError, ValueError),
    "MessageTooLarge": (ValueError,),
    "WaitTimeout": (TimeoutError, RuntimeError),
    "WorkerError": (ValueError,),
    "PackError": (pickle.PicklingError, AttributeError, TypeError),
    "UnknownName": (AttributeError,),
    "StoreTimeout": (errors.StoreError, TimeoutError),
    "StoreLost": (errors.StoreError, errors.NetworkError),
    "StoreRefused": (errors.NetworkError, TimeoutError),
}


@pytest.mark.parametrize("name", CAUGHT_AS)
def test_an_error_is_caught_as_what_programs_expect(name):
    for kind in CAUGHT_AS[name]:
        assert issubclass(OURS[name], kind), kind


def test_all_but_the_end_of_a_rank_come_from_one_root():
    outside = {n for n, c in OURS.items() if not issubclass(c, errors.DisttrainError)}
    assert outside == {"RankGone"}
    assert not issubclass(errors.RankGone, Exception), "`except Exception` must let it pass"


def test_the_drawn_tree_names_parents_that_are_parents():
    """The docstring draws who comes from whom; indentation says it."""
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([ |`-]*)([A-Z]\w+)(?: \(([\w, .]+)\))?", line)
        if found is None or found[2] not in OURS:
            continue
        depth, name = len(found[1]), found[2]
        above = [(d, n) for d, n in above if d < depth]
        if above:
            assert issubclass(OURS[name], OURS[above[-1][1]]), (name, above[-1])
        for base in (found[3] or "").replace("...", "").split(", "):
            kind = getattr(__builtins__, base, None) if base else None
            assert kind is None or issubclass(OURS[name], kind), (name, base)
        above.append((depth, name))
    assert above[0][1] == "DisttrainError"


@pytest.mark.parametrize("name", ["ModuleNameError", "MissingSetting"])
def test_a_key_error_says_its_message_without_quotes(name):
    assert str(OURS[name]("no such name")) == "no such name"
    assert str(KeyError("no such name")) == "'no such name'"  # what it is kept from


def test_a_failed_peer_says_both_of_its_numbers_only_where_they_differ():
    assert str(PeerFailed(2, "killed by SIGKILL")) == "rank 2 failed: killed by SIGKILL"
    assert PeerFailed(2, "x").global_rank == 2
    shrunk = PeerFailed(1, "ValueError: no", where="all_reduce", global_rank=3)
    assert str(shrunk) == "all_reduce: rank 1 (rank 3 when the job started) failed: ValueError: no"
    assert "rank 0 has ended: it is gone" in str(PeerFailed(0, "it is gone", ended=True))
    zero = PeerFailed(1, "x", global_rank=0)  # 0 is a number, too
    assert zero.global_rank == 0 and "(rank 0 when" in str(zero)


def test_a_failed_peer_survives_a_pickle_and_can_be_raised_again():
    first = PeerFailed(1, "KeyError: 'a'", "Traceback ...", "barrier", True, 4)
    for same in (pickle.loads(pickle.dumps(first)), first.again()):
        assert same is not first and vars(same) == vars(first) and str(same) == str(first)
    moved = first.again("all_reduce in train.py:3")
    assert moved.where == "all_reduce in train.py:3" and moved.cause == first.cause
    assert first.again("").where == "" and str(first.again("")).startswith("rank 1")


def test_again_keeps_no_frame_of_the_first():
    first = PeerFailed(1, "x")
    with pytest.raises(PeerFailed):
        raise first
    assert first.__traceback__ is not None and first.again().__traceback__ is None


def test_the_cause_is_shown_only_where_it_is_asked_for(monkeypatch):
    why = ValueError("why")
    monkeypatch.delenv("DISTTRAIN_FULL_TRACEBACK", raising=False)
    assert errors.cause(why) is None
    monkeypatch.setenv("DISTTRAIN_FULL_TRACEBACK", "1")
    assert errors.cause(why) is why


def test_a_write_error_keeps_its_number():
    error = errors.WriteError(28, "No space left on device")
    assert error.errno == 28 and "No space left" in str(error)
