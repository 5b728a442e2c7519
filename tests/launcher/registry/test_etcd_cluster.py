"""The registry on a real etcd of three members, with members killed and stopped."""

from __future__ import annotations

import time

import pytest

from disttrain_launcher.registry.access import access_of
from disttrain_launcher.registry.base import RegistryLost
from disttrain_launcher.registry.etcd import EtcdRegistry
from disttrain_launcher.registry.gateway import Gateway, Refused
from support.clusters import etcd as etcd_cluster
from support.clusters.etcd import EtcdCluster
from support.registry_contract import RegistryContract

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(why := etcd_cluster.why_not()), reason=why or "-"),
]


@pytest.fixture(scope="module")
def etcd():
    with EtcdCluster() as made:
        yield made


@pytest.fixture
def registries(etcd, request):
    made = []

    def registry(job: str = request.node.name, ttl: float = 3.0, **conf: str) -> EtcdRegistry:
        gateway = Gateway(access_of(etcd.endpoint, conf, {}))
        made.append(EtcdRegistry(gateway, job, ttl))
        return made[-1]

    yield registry
    for each in made:
        each.close()


def hold(registry: EtcdRegistry, seconds: float) -> None:
    """Renew for so long, as a keeper does: our lease must be confirmed again within its time."""
    now = confirmed = time.monotonic()
    until = now + seconds
    while now < until:
        try:
            registry.renew()
            confirmed = now
        except RegistryLost:
            pass
        time.sleep(0.2)
        now = time.monotonic()
        assert now < confirmed + registry.ttl, "fenced"


class TestRealEtcd(RegistryContract):
    @pytest.fixture
    def opened(self, registries):
        return lambda: registries(ttl=2.0)


def test_who_leaves_is_gone_at_once(registries):
    a, b = registries(), registries()
    a.put_leased("nodes/a", b"here")
    a.close()
    assert b.read().entries == {}


def test_only_one_swap_of_many_wins(registries):
    everyone = [registries() for _ in range(4)]
    for step in range(5):
        old = b"%d" % (step - 1) if step else None
        assert sum(each.compare_swap("document", old, b"%d" % step) for each in everyone) == 1


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_a_member_of_etcd_is_killed(etcd, registries, which):
    a, b = registries(f"job {which}"), registries(f"job {which}")
    a.put_leased("nodes/a", b"here")
    assert a.compare_swap("document", None, b"one")
    leader = etcd.leader()
    victim = leader if which == "leader" else (leader + 1) % 3
    a.gateway._preferred = b.gateway._preferred = victim  # the one that both had asked so far
    etcd.kill(victim)
    try:
        hold(a, 3.0)
        assert b.read().entries == {"document": b"one", "nodes/a": b"here"}
        assert b.compare_swap("document", b"one", b"two")
    finally:
        etcd.start(victim)
        etcd.leader()


def test_all_of_etcd_stands_still_for_a_second(etcd, registries):
    a = registries()
    a.put_leased("nodes/a", b"here")
    with etcd.stopped():
        time.sleep(1.0)
    hold(a, 2.0)


def test_etcd_does_not_come_back(etcd, registries):
    a = registries()
    a.put_leased("nodes/a", b"here")
    with etcd.stopped():
        with pytest.raises(RegistryLost, match=r"no member gave an answer in 1\.5 s .*no answer"):
            a.put_leased("nodes/a", b"here")
        a.close()  # and does not wait for it


def test_a_member_that_hangs_is_passed_over(etcd, registries):
    a = registries()
    a.put_leased("nodes/a", b"here")
    hung = (etcd.leader() + 1) % 3
    a.gateway._preferred = hung
    with etcd.stopped(hung):
        a.put_leased("nodes/a", b"here")


def test_users(etcd, registries):
    for path, body in (
        ("/auth/user/add", {"name": "root", "password": "s3cret"}),
        ("/auth/role/add", {"name": "root"}),
        ("/auth/user/grant", {"user": "root", "role": "root"}),
        ("/auth/user/add", {"name": "trainer", "password": "s3cret"}),
        ("/auth/role/add", {"name": "trainer"}),
        ("/auth/user/grant", {"user": "trainer", "role": "trainer"}),
        ("/auth/enable", {}),
    ):
        etcd.post(0, path, body)
    try:
        root = registries(user="root", password="s3cret")
        root.put_leased("nodes/a", b"here")
        assert root.compare_swap("document", None, b"one")
        for conf, words in (
            ({}, "user name is empty"),
            ({"user": "root", "password": "guess"}, "user root: etcd says: authentication failed"),
            ({"user": "trainer", "password": "s3cret"}, "permission denied"),
        ):
            with pytest.raises(Refused, match=words):
                registries(**conf).read()
    finally:
        token = etcd.post(0, "/auth/authenticate", {"name": "root", "password": "s3cret"})["token"]
        etcd.post(0, "/auth/disable", {}, token)


def test_certificates_on_both_sides():
    with EtcdCluster(1, tls=True) as etcd:

        def reach(**conf: str) -> None:
            registry = EtcdRegistry(Gateway(access_of(etcd.endpoint, conf, {})), "job")
            try:
                registry.put_leased("nodes/a", b"here")
                assert registry.read().entries == {"nodes/a": b"here"}
            finally:
                registry.close()

        reach(**etcd.conf)
        with pytest.raises(RegistryLost, match="TLS: CERTIFICATE_VERIFY_FAILED") as caught:
            reach(protocol="https")  # an authority that we do not know
        assert caught.value.lasting
        with pytest.raises(RegistryLost, match="TLS: "):  # nobody that etcd knows
            reach(cacert=etcd.conf["cacert"])
        with pytest.raises(RegistryLost, match="if it wants TLS: --rdzv-conf protocol=https"):
            reach(protocol="http")
