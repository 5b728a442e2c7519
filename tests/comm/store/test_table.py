"""Keys of a store that go unless somebody confirms them: a table, and a clock that is made up."""

from __future__ import annotations

import pytest

from disttrain.comm.store.table import GET, LEASE, RENEW, SET, SINCE, Table
from disttrain.errors import StoreError


def put(table: Table, key: bytes, ms: int = 2000) -> None:
    table.apply((LEASE, [key], [b"value", b"%d" % ms]))


def pass_time(table: Table, start: float, seconds: float) -> None:
    for quarter in range(int(seconds * 4) + 1):
        table.expire(start + quarter / 4)


def test_leases_end_by_the_clock_of_who_looks():
    table = Table()
    assert table.expire(99.0) is None
    put(table, b"a")
    put(table, b"b", 3000)
    assert table.expire(100.0) == 100.25
    pass_time(table, 100.0, 1.75)
    assert table.apply((RENEW, [b"b"], [b"3000"])) == [b"1"]
    table.expire(102.0)
    assert sorted(table.entries) == [b"b"]
    assert table.apply((RENEW, [b"a"], [b"2000"])) == [b"0"]
    pass_time(table, 102.0, 3.0)
    assert not table.entries and table.nbytes == 0 and table.expire(200.0) is None


def test_time_in_which_nobody_looked_counts_for_no_lease():
    table = Table()
    put(table, b"a")
    table.expire(100.0)
    table.expire(160.0)
    assert sorted(table.entries) == [b"a"]
    pass_time(table, 160.0, 2.0)
    assert not table.entries


def test_what_has_changed_since():
    table = Table()
    put(table, b"x/a")
    table.apply((SET, [b"y"], [b"other"]))
    revision, *found = table.apply((SINCE, [b"x/"], [b"0"]))
    assert found == [b"x/a", b"value"]
    assert table.apply((SINCE, [b"x/"], [revision])) == [revision]
    assert table.apply((RENEW, [b"x/a"], [b"2000"])) == [b"1"]
    table.apply((GET, [b"y"], []))
    assert table.apply((SINCE, [b"x/"], [revision])) == [revision]
    pass_time(table, 1.0, 2.0)
    assert table.apply((SINCE, [b"x/"], [revision])) == [b"%d" % (int(revision) + 1)]


@pytest.mark.parametrize("ms", [b"", b"0", b"-5", b"x", b"1" * 30])
def test_a_lease_needs_a_time(ms):
    with pytest.raises(StoreError, match="a lease of"):
        Table().apply((LEASE, [b"a"], [b"", ms]))
