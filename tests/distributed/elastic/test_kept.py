"""Memory in which ranks keep what they have committed, for those that take their places."""

from __future__ import annotations

import logging
import os
import resource
import signal

import pytest

import disttrain as dt
from disttrain.distributed import elastic
from disttrain.distributed.elastic import kept

pytestmark = pytest.mark.simulated


@pytest.fixture
def fd():
    made = os.memfd_create(kept.NAME, os.MFD_CLOEXEC)
    yield made
    os.close(made)


@pytest.fixture
def told(fd, monkeypatch):
    monkeypatch.setenv("DISTTRAIN_KEPT_FD", str(fd))
    monkeypatch.setenv("LOCAL_RANK", "0")
    return fd


def test_the_newest_whole_commit_is_found_by_each_rank_and_written_over_last(fd):
    a, b = kept.Kept(fd, 0), kept.Kept(fd, 1)
    assert a.newest(0) is None
    for commit in range(5):
        a.put(commit, {"step": commit, "x": dt.arange(3) + commit})
        b.put(commit, [commit])
    commit, value = kept.Kept(fd, 1).newest(0)
    assert commit == value["step"] == 4 and value["x"].tolist() == [4, 5, 6]
    again = kept.Kept(fd, 1)
    assert again.newest(1) == (4, [4])
    again.put(5, [5])
    again.put(6, [6])
    assert kept.Kept(fd, 1).newest(1) == (6, [6])
    assert kept.Kept(fd, 0).newest(0)[0] == 4


@pytest.mark.parametrize("cut", [0, 20, 30])
def test_what_was_half_written_is_passed_over(fd, cut):
    a = kept.Kept(fd, 0)
    a.put(1, "one")
    a.put(2, "two" * 100)
    os.pwrite(fd, b"\0" * 20 if not cut else b"\xff\xfe", (1 << 35) + cut)
    assert kept.Kept(fd, 0).newest(0) == (1, "one")


def test_where_there_is_no_room_nothing_is_kept_and_it_is_said_once(fd, caplog):
    a = kept.Kept(fd, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with caplog.at_level(logging.WARNING, "disttrain.elastic"):
            for commit in range(3):
                a.put(commit, "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert caplog.text.count("are not kept") == 1 and a.newest(0) is None


def test_another_descriptor_with_that_number_is_left_alone(monkeypatch, tmp_path):
    with open(tmp_path / "f", "wb+") as file:
        for text in (str(file.fileno()), "99999", "x", ""):
            monkeypatch.setenv("DISTTRAIN_KEPT_FD", text)
            monkeypatch.setenv("LOCAL_RANK", "0")
            kept.of_this_rank().put(1, "x")
        assert os.fstat(file.fileno()).st_size == 0


def test_a_state_takes_up_what_the_last_one_has_committed(told):
    def made():
        model = dt.nn.Linear(2, 1)
        return elastic.State(model=model, step=0)

    first = made()
    first.begin()
    for step in (1, 2):
        first.step = step
        with dt.no_grad():
            first.model.weight.fill_(float(step))
        first.commit()
    drawn = dt.randn(3)
    second = made()
    second.begin()
    assert second.commits == 2
    second.restore()
    assert second.step == 2 and second.model.weight.tolist() == [[2.0, 2.0]]
    assert dt.equal(dt.randn(3), drawn)
    other = elastic.State(epoch=0)
    other.begin()
    assert other.commits == 0
