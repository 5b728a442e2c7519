"""What every registry of the launcher promises: tests for a class that says how to open one.

class TestMine(RegistryContract):
    @pytest.fixture
    def opened(self): ...           a function that opens another node's end of one registry
"""

from __future__ import annotations

import time

import pytest

from disttrain_launcher.registry import LeaseEnded, Registry

PATIENCE = 10.0


def until(ready, registry: Registry | None = None) -> None:
    """Wait for something; ``registry`` confirms its lease meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < deadline
        if registry is not None:
            registry.renew()
        time.sleep(0.01)


class RegistryContract:
    def test_one_of_two_that_swap_the_same_succeeds(self, opened):
        a, b = opened(), opened()
        assert a.compare_swap("document", None, b"one")
        assert not b.compare_swap("document", None, b"two")
        assert not b.compare_swap("document", b"two", b"three")
        assert b.compare_swap("document", b"one", b"four")
        assert a.read().entries == b.read().entries == {"document": b"four"}

    def test_a_revision_grows_with_what_changes(self, opened):
        a, b = opened(), opened()
        a.put_leased("nodes/a", b"1")
        first = b.read()
        assert first.entries == {"nodes/a": b"1"} and b.read().revision == first.revision
        a.put_leased("nodes/a", b"2")
        second = b.read()
        assert second.revision > first.revision and second.entries == {"nodes/a": b"2"}
        a.delete("nodes/a")
        a.delete("nodes/never")
        assert b.read().entries == {} and b.read().revision > second.revision

    def test_what_is_published_is_no_entry_and_goes(self, opened):
        a, b = opened(), opened()
        a.put_leased("nodes/a", b"1")
        before = b.read()
        a.publish("seen/a", b"first", a.ttl)
        a.publish("seen/a", b"second", a.ttl)
        a.publish("rows/a", b"third", a.ttl)
        assert b.published("seen/") == {"a": b"second"} and b.published("rows/a") == {"": b"third"}
        assert b.published("none/") == {} and b.read().entries == before.entries
        until(lambda: b.published("seen/") == {})  # nobody confirms it

    def test_a_lease_that_nobody_confirms_ends(self, opened):
        a, b = opened(), opened()
        a.put_leased("nodes/a", b"1")
        b.put_leased("nodes/b", b"2")
        a.compare_swap("document", None, b"stays")
        until(lambda: "nodes/a" not in b.read().entries, b)
        assert b.read().entries == {"nodes/b": b"2", "document": b"stays"}
        with pytest.raises(LeaseEnded):
            a.renew()
        a.put_leased("nodes/a", b"3")
        a.renew()
        assert b.read().entries["nodes/a"] == b"3"

    def test_a_lease_that_is_confirmed_holds(self, opened):
        a, b = opened(), opened()
        a.put_leased("nodes/a", b"1")
        until_then = time.monotonic() + 2.5 * a.ttl
        until(lambda: time.monotonic() > until_then, a)
        assert b.read().entries == {"nodes/a": b"1"}
        deadline = time.monotonic() + PATIENCE
        while True:  # until the machine is not so busy that the time is over before it is looked
            began = time.monotonic()
            a.put_leased("nodes/a", b"2")
            time.sleep(0.7 * a.ttl)
            held = b.read().entries
            if time.monotonic() < began + a.ttl:
                break
            assert began < deadline
        assert held == {"nodes/a": b"2"}
