"""The registry on an etcd: what is written once, and what is lost. A stand-in answers."""

from __future__ import annotations

import time

import pytest
from standins.etcd import StandIn

from disttrain_launcher.registry.access import access_of
from disttrain_launcher.registry.base import LeaseEnded, RegistryLost
from disttrain_launcher.registry.etcd import EtcdRegistry, connect
from disttrain_launcher.registry.gateway import Gateway, Refused, Unreached
from support.registry_contract import RegistryContract

pytest.importorskip("etcd3gw", reason="the extra etcd is not installed")


@pytest.fixture
def etcd():
    with StandIn(3) as made:
        yield made


@pytest.fixture
def registries(etcd):
    made = []

    def registry(job: str = "job", patience: float = 2.0) -> EtcdRegistry:
        gateway = Gateway(access_of(etcd.endpoint, {}, {}))
        made.append(EtcdRegistry(gateway, job, 3.0, patience))
        return made[-1]

    yield registry
    for each in made:
        each.close()


class TestEtcd(RegistryContract):
    @pytest.fixture
    def opened(self):
        """Opens another node's end. The stand-in lets leases of a second last half of one."""
        ends: list[EtcdRegistry] = []
        with StandIn(1, second=0.5) as etcd:

            def another() -> EtcdRegistry:
                ends.append(EtcdRegistry(Gateway(access_of(etcd.endpoint, {}, {})), "job", 0.3))
                return ends[-1]

            yield another
            for end in ends:
                end.close()


def test_a_write_whose_answer_was_lost_is_done_once(etcd, registries):
    a, b = registries(), registries()
    etcd.lose_answers(1)
    assert a.compare_swap("document", None, b"one")  # asked again, and known as its own
    assert b.read().entries == {"document": b"one"}
    etcd.lose_answers(1)
    assert a.compare_swap("document", b"one", b"two")
    assert not b.compare_swap("document", b"one", b"other")
    etcd.lose_answers(2)
    b.put_leased("nodes/b", b"here")
    etcd.lose_answers(1)
    b.renew()
    assert b.read().entries == {"document": b"two", "nodes/b": b"here"}
    etcd.lose_answers(1)
    b.delete("document")
    assert b.read().entries == {"nodes/b": b"here"}


def test_a_document_stays_for_a_while_and_as_long_as_a_node_keeps_it():
    with StandIn(1, second=0.001) as etcd:  # a quarter of an hour takes 0.9 s
        a, b = (EtcdRegistry(Gateway(access_of(etcd.endpoint, {}, {})), "job") for _ in range(2))
        assert a.compare_swap("document", None, b"one")
        assert a.compare_swap("document", b"one", b"two") and etcd.unleased() == []
        a.close()
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            b._kept.clear()  # a minute and a half has passed
            b.keep("document")
            assert b.read().entries == {"document": b"two"}
        time.sleep(1.0)
        assert b.read().entries == {}
        assert b.compare_swap("document", None, b"three")
        b.close()


def test_who_lost_by_the_same_words_does_not_take_them_for_its_own(etcd, registries):
    """Whose answer was lost looks whether it has won by more than by what stands there."""
    a, b, c = registries(), registries(), registries()
    assert a.compare_swap("lock", None, b"first")
    assert b.read().entries == c.read().entries == {"lock": b"first"}
    assert not b.compare_swap("lock", None, b"first")
    assert c.compare_swap("lock", b"first", b"mine")
    etcd.lose_answers(1)
    assert not b.compare_swap("lock", b"first", b"mine")


def test_whose_change_was_changed_before_it_knew_has_won_all_the_same_or_asks_again(
    etcd, registries
):
    a, b = registries(), registries()
    assert a.compare_swap("document", None, b"one")

    def go_on() -> None:
        assert b.read().entries == {"document": b"two"}
        assert b.compare_swap("document", b"two", b"three")

    etcd.lose_answers(1, before=go_on)
    a.compare_swap("document", b"one", b"two")
    assert a.read().entries == {"document": b"three"}


def test_a_request_that_is_carried_out_late_changes_nothing(etcd, registries):
    """What was written meanwhile stays, even where the key has its old value again."""
    a, b = registries(), registries()
    assert a.compare_swap("document", None, b"one")
    assert b.read().entries == {"document": b"one"}
    assert a.compare_swap("document", b"one", b"two")
    assert a.compare_swap("document", b"two", b"one")
    assert not b.compare_swap("document", b"one", b"late")
    assert a.read().entries == {"document": b"one"}


def test_a_lease_that_ended_is_told_and_begins_anew(etcd, registries):
    a, b = registries(), registries()
    a.renew()  # nothing is leased yet
    a.put_leased("nodes/a", b"here")
    etcd.end_leases()
    with pytest.raises(LeaseEnded, match=r"etcd at http://.* has ended this node's lease of 3 s"):
        a.renew()
    assert b.read().entries == {}
    a.put_leased("nodes/a", b"back")
    a.renew()
    etcd.end_leases()
    a.put_leased("nodes/a", b"again")
    a.put_leased("nodes/a2", b"too")
    a.renew()
    assert b.read().entries == {"nodes/a": b"again", "nodes/a2": b"too"}


def test_a_node_that_comes_again_takes_its_key(etcd, registries):
    a, b = registries(), registries()
    a.put_leased("nodes/0", b"before")
    b.put_leased("nodes/0", b"again")
    a.close()  # and with its lease goes nothing of b's
    b.renew()
    assert b.read().entries == {"nodes/0": b"again"}


def test_what_was_not_confirmed_is_looked_at_again(etcd, registries):
    a = registries(patience=0.2)
    a.put_leased("nodes/a", b"one")
    assert a.compare_swap("document", None, b"zero")
    etcd.lose_answers(9)
    with pytest.raises(RegistryLost, match="no member gave an answer"):
        a.put_leased("nodes/a", b"two")
    with pytest.raises(RegistryLost):
        a.compare_swap("document", b"zero", b"one")
    etcd.lose_answers(0)
    a.put_leased("nodes/a", b"two")
    assert a.compare_swap("document", b"one", b"two")
    assert a.read().entries == {"document": b"two", "nodes/a": b"two"}


def test_jobs_do_not_mix(etcd, registries):
    """One job's name may begin with another's, and hold what separates keys."""
    jobs = ["a", "a/b", "a%2Fb", "é /", "."]
    for job in jobs:
        registry = registries(job)
        registry.put_leased("nodes/é", job.encode())
        registry.compare_swap("b/document", None, bytes(range(256)))
    for job in jobs:
        kept = {"nodes/é": job.encode(), "b/document": bytes(range(256))}
        assert registries(job).read().entries == kept


def test_connecting_waits_for_an_etcd_that_starts(etcd):
    etcd.manner[:] = ["no leader"] * 3
    told = []

    def waiting(why: str) -> bool:
        told.append(why)
        etcd.manner[:] = ["well"] * 3
        return True

    registry = connect(etcd.endpoint, "job", {}, 3.0, waiting, 0.2)
    assert registry.read().entries == {}
    registry.close()
    assert len(told) == 1 and "no leader" in told[0]
    etcd.manner[:] = ["no leader"] * 3
    assert connect(etcd.endpoint, "job", {}, 3.0, lambda why: False, 0.2) is None


def test_connecting_does_not_wait_for_what_will_not_change(etcd):
    def waiting(why: str) -> bool:
        raise AssertionError(why)

    with pytest.raises(Unreached, match="the name does not resolve"):
        connect("nowhere.invalid", "job", {}, 3.0, waiting)
    etcd.password = "s3cret"
    with pytest.raises(Refused, match="user name is empty"):
        connect(etcd.endpoint, "job", {}, 3.0, waiting)
