"""What programs hold of RRefs: values made once, errors without frames, forks that are let go."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from disttrain.rpc.rref_handles import OwnerHandle, UserHandle, Value, show
from disttrain.rpc.rref_protocol import GloballyUniqueId, Name

pytestmark = pytest.mark.simulated


def test_a_value_is_made_once():
    value = Value()
    assert not value.done()
    value.put(3)
    value.put(4)
    value.put(None, ValueError("late"))
    assert value.done() and value.wait() == value.value() == 3


def test_who_waits_hears_of_it():
    value, seen = Value(), []
    value.then(lambda done: seen.append(done.value()))
    value.put("made")
    assert seen == ["made"]


def test_what_kept_it_from_being_made_is_raised_each_time_anew():
    value = Value()

    class Held:
        pass

    def fails(held):
        raise KeyError("no such name")

    held = Held()
    gone = weakref.ref(held)
    try:
        fails(held)
    except KeyError as error:
        value.put(None, error)
    del held
    gc.collect()
    assert gone() is None, "the frames of who could not make it are let go"
    errors = []
    for _ in range(2):
        with pytest.raises(KeyError, match="no such name") as raised:
            value.value()
        errors.append(raised.value)
    assert errors[0] is not errors[1]


def test_a_user_s_handle_tells_its_part_when_it_ends():
    noted = []
    part = SimpleNamespace(note=noted.append)
    user = SimpleNamespace(name=Name(1, 2, 0, -1), fork=GloballyUniqueId(1, 3))
    handle = UserHandle(part, user, "owner", "creation")
    assert (handle.user, handle.owner, handle.creation, noted) == (user, "owner", "creation", [])
    del handle
    gc.collect()
    assert noted == [user]


def test_an_owner_s_handle_keeps_its_value():
    value = Value()
    handle = OwnerHandle("part", "name", value)
    assert (handle.part, handle.name, handle.value, handle.creation) == (
        "part",
        "name",
        value,
        None,
    )
    assert weakref.ref(handle)() is handle


def test_a_fork_is_shown_with_both_its_ids():
    user = SimpleNamespace(name=Name(1, 2, 0, -1), fork=GloballyUniqueId(3, 4))
    first, second = (f"GloballyUniqueId(created_on={a}, local_id={b})" for a, b in ((1, 2), (3, 4)))
    assert show(user) == f"UserRRef(RRefId = {first}, ForkId = {second})"
