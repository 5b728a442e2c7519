"""Whole jobs whose nodes meet at a real etcd: nodes and members of it killed, networks cut."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import pytest

from support.clusters import etcd as etcd_cluster
from support.clusters import etcd_job
from support.clusters.etcd import EtcdCluster
from support.clusters.etcd_job import EtcdJob, Hosts, etcd_hosts
from support.stepping import Note, notes_of, verify, wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(why := etcd_cluster.why_not()), reason=why or "-"),
]
needs_networks = pytest.mark.skipif(bool(no := etcd_job.why_not()), reason=no or "-")
QUICK = ("--rdzv-conf", "last_call_timeout=2")


@pytest.fixture(scope="module")
def etcd():
    with EtcdCluster() as made:
        yield made


@pytest.fixture
def here(etcd):
    """Three nodes of this machine."""
    return Hosts(3, etcd)


@pytest.fixture(scope="module")
def apart():
    """Three hosts with a member of etcd on each."""
    with etcd_hosts(3) as made:
        yield made


def steps_of(world: int, after: int = 0, count: int = 10) -> Callable[[list[Note]], bool]:
    """Has a generation of so many ranks, later than ``after``, made so many steps?"""
    return lambda notes: (
        len({n.step for n in notes if n.world == world and n.generation > after}) > count
    )


def started(job: EtcdJob, nodes: int = 3) -> int:
    """The generation of all nodes, which steps."""
    for host in range(nodes):
        job.start(host)
    return wait_for(job.folders, steps_of(nodes))[-1].generation


def ends_well(job: EtcdJob, *hosts: int) -> dict[int, tuple[int, int]]:
    """Let it end; what ``verify`` gives."""
    job.finish()
    for host in hosts:
        ended = job.wait(host)
        assert ended.code == 0, ended.err
    return verify(notes_of(job.folders))


@needs_networks
def test_the_first_node_is_lost_with_its_member_of_etcd(apart, tmp_path):
    with EtcdJob(tmp_path, apart, "--nnodes", "2:3", *QUICK) as job:
        generation = started(job)
        first = job.node_of_rank_0()
        apart.etcd.kill(first)
        job.kill(first)
        try:
            wait_for(job.folders, steps_of(2, generation))
            assert len(ends_well(job, *({0, 1, 2} - {first}))) == 2
        finally:
            apart.etcd.start(first)
            apart.etcd.leader()


@needs_networks
@pytest.mark.parametrize("one_way", [False, True], ids=["both ways", "one way"])
def test_a_node_is_cut_off_and_comes_back(apart, tmp_path, one_way):
    """The others go on; it stops before, waits, and is one of them again when it can be."""
    with EtcdJob(tmp_path, apart, "--nnodes", "2:3", *QUICK) as job:
        generation = started(job)
        cut = job.node_of_rank_0()
        others = [host for host in range(3) if host != cut]
        apart.cut(others, [cut], one_way)
        try:
            notes = wait_for(job.folders, steps_of(2, generation))
        finally:
            apart.heal()
        wait_for(job.folders, steps_of(3, notes[-1].generation))
        assert len(ends_well(job, 0, 1, 2)) == 3
        assert "its ranks are stopped before the others can take it for lost" in job.output(cut)


@needs_networks
def test_a_node_that_needs_nobody_stops_when_it_is_cut_off(apart, tmp_path):
    """It alone could step for ever: only its lease makes it stop, before another one begins."""
    with EtcdJob(tmp_path, apart, "--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=0") as job:
        job.start(0)
        generation = wait_for(job.folders, steps_of(1))[-1].generation
        apart.cut([0], [1, 2])
        try:
            job.start(1)
            notes = wait_for(job.folders, steps_of(1, generation))
        finally:
            apart.heal()
        wait_for(job.folders, steps_of(2, notes[-1].generation))
        assert len(ends_well(job, 0, 1)) == 3


def test_etcd_stands_still_for_a_second_and_loses_its_leader(etcd, here, tmp_path):
    with EtcdJob(tmp_path, here, "--nnodes", "2", *QUICK) as job:
        started(job, 2)
        with etcd.stopped():
            time.sleep(1.0)
        leader = etcd.leader()
        etcd.kill(leader)
        try:
            time.sleep(2.5)
        finally:
            etcd.start(leader)
            etcd.leader()
        assert len(ends_well(job, 0, 1)) == 1


def test_etcd_is_gone_for_good(etcd, here, tmp_path):
    conf = ("--rdzv-conf", "last_call_timeout=2,join_timeout=5")
    with EtcdJob(tmp_path, here, "--nnodes", "2", *conf) as job:
        started(job, 2)
        with etcd.stopped():
            ended = [job.wait(host) for host in range(2)]
        for each in ended:
            assert each.code == 76, each.err
            assert "no member gave an answer" in each.err
        verify(notes_of(job.folders))


def test_two_jobs_on_one_etcd_and_one_of_the_same_name_again(here, tmp_path):
    one = EtcdJob(tmp_path, here, "--nnodes", "2", *QUICK)
    other = EtcdJob(tmp_path, here, "--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=0")
    with one, other:
        other.start(0)
        generation = started(one, 2)
        wait_for(other.folders, steps_of(1))
        assert generation == 1
        other.kill(0)  # and leaves its document behind
        assert len(ends_well(one, 0, 1)) == 1
    again = tmp_path / "again"
    again.mkdir()
    for before in (one, other):
        with EtcdJob(again, here, "--nnodes", "2", *QUICK, name=before.name) as job:
            assert started(job, 2) == 2  # no number is used twice
            assert len(ends_well(job, 0, 1)) == 1


@pytest.mark.skipif(not shutil.which("faketime"), reason="there is no faketime(1)")
def test_clocks_that_differ_by_a_day(here, tmp_path):
    with EtcdJob(tmp_path, here, "--nnodes", "3", *QUICK) as job:
        job.start(0, prefix=("faketime", "-f", "-1d"))
        job.start(1, prefix=("faketime", "-f", "+1d"))
        job.start(2)
        wait_for(job.folders, steps_of(3, count=30))
        assert len(ends_well(job, 0, 1, 2)) == 1


def test_what_is_wrong_is_named_at_once(etcd, here, tmp_path):
    for flags, words in (
        (("--rdzv-endpoint", "nowhere.invalid"), "the name does not resolve"),
        (("--rdzv-endpoint", "etcd://a"), "neither http nor https"),
        (("--rdzv-conf", "cacert=/nowhere"), "cacert=/nowhere: no such file"),
        (("--rdzv-conf", "user=root,password=x,protocol=grpc"), "http or https is needed"),
    ):
        with EtcdJob(tmp_path, here, "--nnodes", "2", *flags) as job:
            job.start(0)
            ended = job.wait(0)
            assert (ended.code, words in ended.err) == (2, True), ended.err
