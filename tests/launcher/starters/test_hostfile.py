"""mpiexec's command for the hosts of a file."""

from __future__ import annotations

import pytest

from disttrain.errors import LaunchError
from launcher.starters.hostfile import command

HOSTS = [("a", 2), ("b", 0)]


def parts(words: list[str]) -> list[list[str]]:
    text = "\0".join(words).split("\0:\0")
    return [part.split("\0") for part in text]


def test_a_program_for_each_host_with_its_slots():
    first, second = parts(command("mpiexec", False, HOSTS, "4", ["train.py"]))
    assert first[:5] == ["mpiexec", "-hosts", "a,b", "-ppn", "1"]
    assert first[-3:] == ["--nproc-per-node", "2", "train.py"]
    assert second[:2] == ["-n", "1"]
    assert second[-3:] == ["--nproc-per-node", "4", "train.py"]  # no slots: what the command says


def test_open_mpi_has_flags_of_its_own():
    words = command("mpiexec", True, HOSTS, "4", [])
    assert words[1:3] == ["--host", "a:1,b:1"] and "-ppn" not in words


def test_one_host_is_no_cluster():
    assert "--cluster" not in command("mpiexec", False, HOSTS[:1], "4", [])
    assert command("mpiexec", False, HOSTS, "4", []).count("--cluster") == 2


def test_a_host_twice_is_refused():
    with pytest.raises(LaunchError, match="a is there twice"):
        command("mpiexec", False, [*HOSTS, ("a", 1)], "4", [])
