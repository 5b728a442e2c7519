"""What a rank has asked to be equal, folded into one digest."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from disttrain.comm.group.carried import Carried
from disttrain.distributed.equality import ledger as module
from disttrain.distributed.equality.leaves import leaves
from disttrain.distributed.equality.ledger import KEPT, Ledger, entry, ledger_of


def of(*values):
    ledger = Ledger(lambda *given: ValueError())
    for value in values:
        ledger.add(entry("", leaves(value), "here"))
    return ledger


def test_equal_values_in_one_order_have_one_digest():
    assert of(1, 2).take().digest == of(1, 2).take().digest
    assert len({of(*v).take().digest for v in [(1, 2), (2, 1), (1,), (1, 2, 2), ((1, 2),)]}) == 5


def test_names_and_kinds_count():
    parts = leaves(1)
    found = {entry(*row).hash for row in [("a", parts, "x"), ("b", parts, "x")]}
    found.add(entry("a", parts, "x", "step").hash)
    assert len(found) == 3
    assert entry("a", parts, "x").hash == entry("a", parts, "y").hash  # lines do not


def test_taking_begins_anew():
    ledger = of(1, 2)
    assert ledger.pending
    first = ledger.take()
    assert not ledger.pending and (first.start, first.end) == (0, 2)
    ledger.add(entry("lr", leaves(0.5), "here"))
    second = ledger.take()
    assert (second.start, second.end) == (2, 3) and second.told == "lr=0.5"
    assert second.digest != first.digest
    lost, kept = ledger.kept(first)
    assert lost == 0 and [e.leaves[0].told for e in kept] == ["1", "2"]


def test_only_the_latest_values_are_kept():
    ledger = of(*range(KEPT + 10))
    lost, kept = ledger.kept(ledger.take())
    assert lost == 10 and len(kept) == KEPT and kept[0].leaves[0].told == "10"


def test_large_values_are_kept_as_long_as_there_is_room(monkeypatch):
    monkeypatch.setattr(module, "KEPT_LEAVES", 10)
    ledger = of([1] * 5, [2] * 5, [3] * 50, 4)  # 6, 6, 5 and 1 leaves
    lost, kept = ledger.kept(ledger.take())
    assert lost == 2 and len(kept) == 2
    ledger.add(entry("", leaves(dict.fromkeys(range(30), 0)), "here"))
    lost, kept = ledger.kept(ledger.take())
    assert lost == 0 and len(kept) == 1  # the latest is always kept


def test_a_group_has_one_ledger_whatever_its_transport_becomes():
    group = SimpleNamespace(transport=object())
    found = ledger_of(group, lambda *given: ValueError())
    assert isinstance(group.transport, Carried)
    assert ledger_of(group, None) is found
    group.transport = SimpleNamespace(cpu=group.transport)  # a device has come
    assert ledger_of(group, None) is found and isinstance(group.transport, Carried)


def test_threads_may_add():
    ledger = of()
    threads = [
        threading.Thread(target=lambda: [ledger.add(entry("", leaves(1), "")) for _ in range(200)])
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert ledger.take().digest == of(*[1] * 800).take().digest
