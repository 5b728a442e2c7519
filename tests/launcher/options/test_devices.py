"""Ranks by device: how many, which one each sees, on which cores; the driver is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from standins import nvml as nvml_standin

from disttrain.errors import LaunchError
from disttrain_launcher.command import placement
from disttrain_launcher.options import command_line, devices
from disttrain_launcher.plan.job import make_plan
from support.dtrun import dtrun

SAY = """
import os, sys
assert not any('libcuda' in line or 'libnvidia-ml' in line for line in open('/proc/self/maps'))
print(*(os.environ.get(n) for n in ('RANK', 'LOCAL_RANK', 'CUDA_VISIBLE_DEVICES')),
      len(os.sched_getaffinity(0)) > 0)
"""


def lines(ended):
    assert ended.err == "" and ended.code == 0, ended
    return sorted(line.split("] ")[-1] for line in ended.out.splitlines())


def test_a_rank_for_each_visible_device(tmp_path):
    env = {**nvml_standin.environment("hgx"), "CUDA_VISIBLE_DEVICES": "3,GPU-1"}
    ended = dtrun(tmp_path, SAY, "--nproc-per-node", "gpu", "--binding", "node", env=env)
    assert lines(ended) == ["0 0 3,GPU-1 True", "1 1 3,GPU-1 True"]


def test_each_rank_sees_its_own_device_alone(tmp_path):
    env = nvml_standin.environment("mig")
    flags = ("--nproc_per_node=gpu", "--virtual-local-rank", "--numa-binding=node")
    ended = dtrun(tmp_path, SAY, *flags, "--start-method", "spawn", env=env)
    instances = [f"MIG-0{i}000000-aaaa-bbbb-cccc-0123456789ab" for i in (0, 1)]
    assert lines(ended) == [
        f"0 0 {instances[0]} True",
        f"1 0 {instances[1]} True",
        "2 0 1 True",
    ]


def test_no_device_is_a_usage_error(tmp_path, monkeypatch, capsys):
    for name, value in nvml_standin.environment("hgx").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SystemExit) as info:
        command_line.parse(["--nproc-per-node", "gpu", "train.py"], {})
    said = capsys.readouterr().err
    assert info.value.code == 2
    assert "no device is visible here (there are 4, of which CUDA_VISIBLE_DEVICES='' shows" in said
    assert "disttrain doctor" in said
    chosen = command_line.parse(["--virtual-local-rank", "train.py"], {})
    with pytest.raises(
        LaunchError, match=r"--virtual-local-rank: no device is visible here .there"
    ):
        placement.placed(make_plan(chosen, 1), chosen)


def test_auto_means_devices_where_there_are_any(monkeypatch):
    for name, value in nvml_standin.environment("hgx").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cores = len(os.sched_getaffinity(0))
    monkeypatch.setattr(devices, "SIGNS", ())
    assert devices.num_ranks("auto") == devices.num_ranks("cpu") == cores
    monkeypatch.setattr(devices, "SIGNS", ("/",))
    assert devices.num_ranks("auto") == 4
    monkeypatch.setenv("NVML_MACHINE", "driverless")
    assert devices.num_ranks("auto") == cores


def test_bad_modes_are_usage_errors(capsys):
    for words, env, said in (
        (["--binding", "x"], {}, "invalid choice"),
        ([], {"PET_NUMA_BINDING": "x"}, "one of none, node"),
        (["--numa-binding", "node", "--simulate", "4"], {}, "processes that dtrun starts here"),
        (["--nproc-per-node", "many"], {}, "a number, auto, cpu or gpu is needed"),
        (["--nproc-per-node", "0"], {}, "at least one rank"),
    ):
        with pytest.raises(SystemExit):
            command_line.parse([*words, "train.py"], env)
        assert said in capsys.readouterr().err


CUDA = "int cuDeviceGetCount(int *n) { *n = 1; return %d; }\n"
FROM_HERE = """
import ctypes, sys
from disttrain_launcher.options import devices
before = devices.cuda_is_initialised()
held = ctypes.CDLL(sys.argv[1])
print(before, devices.cuda_is_initialised())
if not devices.cuda_is_initialised():
    sys.exit()
from disttrain_launcher.command.dispatch import main
sys.exit(main(['--nproc-per-node', '1', sys.argv[2]]))
"""


@pytest.mark.parametrize("code", [0, 3])
def test_cuda_before_the_fork_is_an_error_that_says_so(tmp_path, code):
    """The driver's library is loaded where dtrun runs; it says whether it was initialised, too."""
    (tmp_path / "cuda.c").write_text(CUDA % code)
    (tmp_path / "script.py").write_text("print('ran')")
    nvml_standin.needs_compiler()
    library = str(tmp_path / "libcuda.so.1")
    words = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library]
    subprocess.run([*words, str(tmp_path / "cuda.c")], check=True, timeout=60)
    words = [sys.executable, "-c", FROM_HERE, library, str(tmp_path / "script.py")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if code == 0:
        assert (done.returncode, done.stdout) == (1, "False True\n")
        assert "CUDA is initialised in the process that ranks are forked from" in done.stderr
        assert "--start-method spawn" in done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "False False\n", "")
