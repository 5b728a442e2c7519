"""A whole job whose nodes meet at a stand-in for an etcd, where there is no real one."""

from __future__ import annotations

import pytest
from standins.etcd import StandIn

from disttrain_launcher.nodes.keeper import settings_of
from disttrain_launcher.options.rendezvous import Rendezvous
from disttrain_launcher.plan.membership import Settings
from support.clusters.etcd_job import EtcdJob, Hosts
from support.stepping import notes_of, verify, wait_for

pytest.importorskip("etcd3gw", reason="the extra etcd is not installed")


def test_two_nodes_meet_at_etcd(tmp_path):
    with StandIn(2) as etcd:
        etcd.manner[0] = "silent"
        with EtcdJob(tmp_path, Hosts(2, etcd), "--nnodes", "2") as job:
            job.start(0)
            job.start(1)
            wait_for(job.folders, lambda notes: len(notes) > 10)
            job.finish()
            for host in (0, 1):
                ended = job.wait(host)
                assert ended.code == 0, ended.err
            assert list(verify(notes_of(job.folders))) == [1]
        assert etcd.unleased() == []


def test_an_etcd_that_elects_may_know_later_that_a_node_is_lost():
    """Errors of ranks that only tell of others wait until then, and are not taken for the cause."""

    def known_within(backend: str) -> Settings:
        return settings_of(Rendezvous(backend, "a", "a", 1, "job", 1, 2, ttl=3.0), 0)

    assert known_within("c10d").ttl == 3.0
    assert known_within("etcd").ttl == 10.0
