"""The file with a job's token is read by its owner only, and only where nobody else can."""

from __future__ import annotations

import os
import time
from contextlib import closing

import pytest

import disttrain.distributed as dist
from disttrain.comm.job.worker_env import WorkerEnv, read_worker_env
from disttrain.comm.sockets.proof import shared_token
from disttrain.comm.store import HashStore, PrefixStore, TCPStore, tcp
from disttrain.comm.store.rendezvous import store_for
from disttrain.comm.store.token_file import read_token_file
from disttrain.errors import ConfigError, WaitTimeout
from support.ranks import free_port

TOKEN = bytes(range(32))


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "token"
    file.write_bytes(TOKEN)
    file.chmod(0o600)
    return file


def test_it_is_read(path):
    assert read_token_file(str(path)) == TOKEN


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_others_must_not_reach_it(path, mode):
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 600"):
        read_token_file(str(path))


def test_links_pipes_folders_and_short_files_are_refused(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "short").write_bytes(b"1234567")
    (tmp_path / "short").chmod(0o600)
    for name in ("link", "pipe", "short", "nowhere"):
        with pytest.raises(ConfigError, match="token file"):
            read_token_file(str(tmp_path / name))
    with pytest.raises(ConfigError, match="belongs to this user"):
        read_token_file(str(tmp_path))


def place(rank, path):
    return WorkerEnv(rank, rank + 1, generation=0, token_file=str(path), tls=False)


def test_workers_with_the_file_meet_under_its_token(path):
    env = {"DISTTRAIN_TOKEN_FILE": str(path), "RANK": "0", "WORLD_SIZE": "1"}
    assert read_worker_env(env).token_file == str(path)
    host = store_for("tcp://127.0.0.1:0", place(0, path), 10.0)
    try:
        url = f"tcp://127.0.0.1:{host.port}"
        other = store_for(url, place(1, path), 10.0)
        assert host.meeting_host == other.meeting_host == "127.0.0.1"
        assert host.secret("x") == other.secret("x") != host.secret("y") != b""
        other.close()
        with pytest.raises(WaitTimeout, match="does not know this job"):
            TCPStore("127.0.0.1", host.port, token=bytes(32), timeout=0.5)
    finally:
        host.close()


def test_what_is_read_on_the_way_does_not_tell_the_shared_secret():
    """A listener between hosts sees what lies in the store, and has no token."""
    store = TCPStore("127.0.0.1", 0, is_master=True, token=TOKEN)
    try:
        agreed = shared_token(PrefixStore("group", store), "rpc")
        assert agreed == shared_token(PrefixStore("group", store), "rpc")
        assert bytes.fromhex(store.get("group/rpc/token").decode()) != agreed
    finally:
        store.close()


def test_stores_of_one_host_have_no_token():
    for store in (HashStore(), PrefixStore("a", HashStore())):
        assert store.meeting_host is None and store.secret("x") == b""
        assert len(shared_token(store, "rpc")) == 32


ELSEWHERE = "203.0.113.7"  # of a block that is nobody's (RFC 5737)


@pytest.mark.parametrize("is_master", [True, False])
def test_another_machine_without_a_token_is_refused_at_once(is_master):
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=rf"{ELSEWHERE}:29500: .*no token file.*_TOKEN_FILE=FILE"):
        TCPStore(ELSEWHERE, 29500, None, is_master, timeout=30.0)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_are_to_meet_on_another_machine_are_told_of_the_token(rank, monkeypatch):
    told = {"MASTER_ADDR": ELSEWHERE, "MASTER_PORT": "29500", "RANK": str(rank), "WORLD_SIZE": "2"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=rf"{ELSEWHERE}:29500: .*token file"):
        dist.init_process_group(timeout=30)


def test_a_store_that_a_program_makes_has_the_token_of_its_job(path, monkeypatch):
    """At an address of a network; at loopback it is this user's, as ever."""
    monkeypatch.setenv("DISTTRAIN_TOKEN_FILE", str(path))
    monkeypatch.setattr(tcp, "is_loopback", lambda host: host == "localhost")
    host = TCPStore("127.0.0.1", 0, is_master=True)
    try:
        other = TCPStore("127.0.0.1", host.port)
        assert host.meeting_host == other.meeting_host == "127.0.0.1"
        other.close()
        path.write_bytes(bytes(32))
        with pytest.raises(WaitTimeout, match="does not know this job's token"):
            TCPStore("127.0.0.1", host.port, timeout=0.5)
    finally:
        host.close()
    with closing(TCPStore("localhost", 0, is_master=True)) as here:
        assert here.meeting_host is None


def test_who_waits_for_other_machines_without_a_token_is_told_that_none_can_come(monkeypatch):
    monkeypatch.setattr(tcp, "is_loopback", lambda host: False)
    with pytest.raises(WaitTimeout, match=r"for rank 1 to come.*Only processes of this machine"):
        dist.init_process_group(
            init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=2, timeout=0.5
        )
