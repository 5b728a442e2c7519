"""The job's token reaches all nodes, and nobody else."""

import os
import threading
from pathlib import Path

import pytest

from disttrain.errors import ConfigError, LaunchError
from disttrain_launcher.clusters import Place
from disttrain_launcher.clusters.tokens import derive, key_path, token_of, user_key

SLURM = Place("slurm", 2, "n1:15000", 0, "slurm-7.0", label="slurm big 7.0 0")


def test_nodes_that_share_a_home_have_one_token(tmp_path):
    env = {"HOME": str(tmp_path)}
    first, second = (token_of(SLURM, env) for _ in range(2))
    assert first == second and len(first) == 32
    path = key_path(env)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(os.path.dirname(path)) == ["key"], "nothing else is left there"
    assert Path(path).read_bytes() not in first


def test_every_job_and_every_start_has_its_own(tmp_path):
    key = user_key(str(tmp_path / "key"))
    labels = ["slurm big 7.0 0", "slurm big 7.1 0", "slurm big 7.0 1", "slurm other 7.0 0", "mpi x"]
    assert len({derive(key, label) for label in labels}) == len(labels)


def test_many_nodes_may_make_the_key_at_once(tmp_path):
    path, found, gate = str(tmp_path / "new" / "key"), [], threading.Barrier(8)

    def one():
        gate.wait()
        found.append(user_key(path))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert os.listdir(tmp_path / "new") == ["key"]


def test_a_key_that_others_may_read_is_refused(tmp_path):
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    token_of(SLURM, env)
    os.chmod(key_path(env), 0o640)
    with pytest.raises(ConfigError, match="0600"):
        token_of(SLURM, env)


def test_a_key_that_cannot_be_made_says_what_to_do(tmp_path):
    (tmp_path / "disttrain").write_text("in the way")
    with pytest.raises((LaunchError, ConfigError)) as told:
        token_of(SLURM, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert str(tmp_path) in str(told.value)


def test_the_users_own_file_comes_first(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(b"s" * 20)
    path.chmod(0o600)
    env = {"HOME": str(tmp_path), "DISTTRAIN_TOKEN_FILE": str(path)}
    assert token_of(SLURM, env) == b"s" * 20 == token_of(Place(), env)
    assert not (tmp_path / ".config").exists()


def test_one_machine_has_no_token(tmp_path):
    assert token_of(Place(), {"HOME": str(tmp_path)}) is None
    assert os.listdir(tmp_path) == []


def test_a_mounted_secret_is_a_link_that_belongs_to_somebody_else(tmp_path):
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "token").write_bytes(b"t" * 44)
    (tmp_path / "..data" / "token").chmod(0o440)
    (tmp_path / "token").symlink_to("..data/token")
    pod = Place("kubernetes", 2, token_file=str(tmp_path / "token"))
    assert token_of(pod, {}) == b"t" * 44
    (tmp_path / "..data" / "token").unlink()
    with pytest.raises(LaunchError, match=r"DISTTRAIN_TOKEN_FILE=.*Secret"):
        token_of(pod, {})
    (tmp_path / "..data" / "token").write_bytes(b"short")
    with pytest.raises(LaunchError, match="5 bytes; at least 16"):
        token_of(pod, {})
