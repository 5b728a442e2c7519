"""Errors of the owners of an optimizer's parameters."""

from __future__ import annotations

import pytest

from disttrain.errors import PeerFailed
from disttrain.rpc.optim.failures import OwnersFailed, owners_failed


def test_the_group_names_owners_and_is_of_the_kind_of_its_errors():
    error = owners_failed("X.step", {"w1": ValueError("on worker w1: bad")}, ["w2", "w3"])
    assert isinstance(error, ExceptionGroup) and isinstance(error, ValueError)
    assert str(error).startswith("X.step: failed at 1 of 3 owners; done at w2, w3. w1: ValueError")
    assert "go on from a checkpoint" in str(error)
    assert error.done == ["w2", "w3"] and list(error.failed) == ["w1"]


def test_a_dead_owner_is_a_failed_peer():
    with pytest.raises(PeerFailed, match="w1: PeerFailed: rank 1 failed: gone") as caught:
        raise owners_failed("X.clip", {"w1": PeerFailed(1, "gone")}, [])
    assert caught.value.rank == 1 and isinstance(caught.value, OwnersFailed)


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ([ValueError("a"), ValueError("b")], ValueError),
        ([ValueError("a"), UnicodeDecodeError("utf8", b"", 0, 1, "b")], ValueError),
        ([PeerFailed(1, "a"), RuntimeError("b")], RuntimeError),
        ([OSError("a"), FileNotFoundError("b")], Exception),
        ([KeyError("a"), ValueError("b")], Exception),
    ],
)
def test_groups_of_several_errors(errors, kind):
    error = owners_failed("X.step", dict(zip("ab", errors, strict=True)), [])
    assert isinstance(error, kind) and isinstance(error, OwnersFailed)
    assert list(error.exceptions) == errors
    assert "failed at 2 of 2 owners. a: " in str(error)
    taken = []
    try:
        raise error
    except* ValueError as group:
        taken += group.exceptions
    except* Exception as group:
        taken += group.exceptions
    assert len(taken) == 2


def test_messages_leave_tracebacks_to_the_errors():
    error = RuntimeError("on w1: bad\nTraceback (most recent call last):\n  File x")
    assert "File x" not in str(owners_failed("X.step", {"w1": error}, []))
    assert (
        str(owners_failed("X", {"w": KeyError()}, ["v"])).partition(" (")[0].endswith("w: KeyError")
    )
