"""Which devices a program has: ranks, simulated ones, one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from disttrain import distributed as dist
from disttrain.context import Rank, attach
from disttrain.distributed.spmd import devices, inventory, local_devices, simulate
from disttrain.errors import ConfigError


def test_simulated_ones_are_asked_for_before_they_are_used():
    with attach(Rank()):
        simulate(3)
        assert [d.id for d in devices()] == [0, 1, 2] and local_devices() == devices()
        assert not inventory.spread()
        simulate(3)
        with pytest.raises(ConfigError, match="after the program has used its 3"):
            simulate(4)


@pytest.mark.parametrize(("flags", "count"), [("", 1), ("--a=1 {} --b", 5)])
def test_the_flag_that_others_set(flags, count, monkeypatch):
    flag = "--xla_force_host_platform_device_count=5"
    monkeypatch.setenv("XLA_FLAGS", flags.format(flag))
    with attach(Rank()):
        assert len(devices()) == count


def test_ranks_are_devices():
    def body():
        return [d.id for d in devices()], [d.id for d in local_devices()], len(local_devices(0))

    found = dist.simulate(body, 2).results
    assert found == [([0, 1], [0], 1), ([0, 1], [1], 1)]


def test_so_are_those_of_a_launcher(tmp_path):
    script = tmp_path / "count.py"
    script.write_text(
        "from disttrain.distributed import spmd\n"
        "print(len(spmd.devices()), [str(d) for d in spmd.local_devices()])\n"
    )
    words = ["-m", "disttrain_launcher", "--nproc-per-node", "2", str(script)]
    out = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    assert "2 ['cpu:0']" in out.stdout and "2 ['cpu:1']" in out.stdout
