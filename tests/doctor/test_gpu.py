"""What ``disttrain doctor`` says of GPUs: facts of made-up machines, and how they are asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from standins import nvml as nvml_standin

from disttrain import gpus
from disttrain.doctor import gpu
from disttrain.doctor.facts import Facts

CARDS = tuple(
    gpus.Card(i, f"GPU-{i}", f"0000:{i}b:00.0", "NVIDIA H100", i, 80 << 30, 79 << 30, (9, 0))
    for i in (0, 1)
)
GOOD = Facts(
    machine=gpus.Machine(
        "nvml", CARDS, "580.65", 13000, (gpus.Pair(0, 1, 18, "one NUMA node", "yes"),), (0, 0)
    ),
    nodes={"/dev/nvidia0": True, "/dev/nvidia1": True, "/dev/nvidiactl": True},
    hardware=("0000:0b:00.0", "0000:1b:00.0"),
    module=True,
    packages={"cupy-cuda13x": "14.2.0", "nccl4py": "0.6.0", "nvidia-nccl-cu13": "2.32.3",
              "cuda-bindings": "13.0.3"},
    driver={"code": 0, "cuda": 13000, "count": 2},
    cupy={"version": "14.2.0", "runtime": 13000, "devices": 2},
    nccl={"version": "0.6.0", "nccl": "2.32.3", "path": "/lib/libnccl.so.2"},
    nvrtc={"version": "13.0"},
)  # fmt: skip
NOTHING = Facts(machine=gpus.Machine("dev"), driver={"error": "libcuda.so.1: cannot open"})
OLD = replace(GOOD.machine, cuda=12080)


def without(*names, **more):
    return {n: v for n, v in (GOOD.packages | more).items() if n not in names}


def test_a_machine_where_all_is_well():
    found = {f.name: f for f in gpu.judge(GOOD)}
    assert {f.state for f in found.values()} == {"ok"}
    assert found["driver"].value == "580.65, runs CUDA 13.0 and older"
    assert found["device 1"].value == (
        "NVIDIA H100, 80.0 GiB, 79.0 GiB free, capability 9.0, 0000:1b:00.0"
    )
    assert found["between any two"].value == "18 NVLinks; peer access: yes"
    assert "a product on the device is right" in found["cupy (cupy-cuda13x)"].value
    assert found["NCCL"].value == "2.32.3 (nccl4py 0.6.0; /lib/libnccl.so.2)"


def test_a_machine_without_a_gpu():
    found = {f.name: f for f in gpu.judge(NOTHING)}
    assert {f.state for f in found.values()} == {"missing"}
    assert found["driver"].value.startswith("no GPU: no NVIDIA driver")
    assert found["cupy"].install == "pip install 'disttrain[cuda13]'"
    answer = {"version": "14", "error": "no device"}
    packages = replace(NOTHING, packages=GOOD.packages, cupy=answer,
                       nccl=GOOD.nccl, nvrtc=GOOD.nvrtc)  # fmt: skip
    assert {f.name for f in gpu.judge(packages) if f.state != "ok"} == {"driver"}


WRONG = {
    "no driver": (replace(NOTHING, hardware=("0000:1b:00.0",)), "driver", "PCI bus", "drivers"),
    "container": (
        replace(NOTHING, container=True, module=True), "driver", "was not given", "--gpus all"),
    "half a container": (
        replace(NOTHING, nodes={"/dev/nvidia0": True}), "driver", "does not load", "CAPABILITIES"),
    "closed": (
        replace(GOOD, nodes={"/dev/nvidia0": False}), "/dev", "/dev/nvidia0", "ls -l /dev/nvidia0"),
    "mismatch": (
        replace(NOTHING, driver={"code": 803, "cuda": 13000}), "driver", "different versions",
        "reboot"),
    "fabric": (
        replace(GOOD, driver={"code": 802, "cuda": 13000}), "driver", "error 802", "fabricmanager"),
    "no device": (
        replace(NOTHING, driver={"code": 100, "cuda": 13000}), "devices", "no GPU is visible",
        "nvidia-smi"),
    "hidden": (
        replace(GOOD, visible="7"), "devices", "CUDA_VISIBLE_DEVICES='7' shows none", "unset"),
    "newer wheel": (
        replace(GOOD, machine=OLD), "cupy", "for CUDA 13, the driver runs CUDA 12",
        "disttrain[cuda12]"),
    "newer NVRTC": (replace(GOOD, machine=OLD), "NVRTC", "does not load", "nvrtc-cu12"),
    "two wheels": (
        replace(GOOD, packages=without(**{"cupy-cuda12x": "14"})), "cupy", "more than once",
        "pip uninstall cupy-cuda13x cupy-cuda12x; "),
    "two of NCCL": (
        replace(GOOD, packages=without(**{"nvidia-nccl-cu12": "2"})), "NCCL packages",
        "write one file", "pip uninstall"),
    "no CuPy": (replace(GOOD, packages=without("cupy-cuda13x")), "cupy", "not found", "cuda13"),
    "no nccl4py": (
        replace(GOOD, packages=without("nccl4py")), "NCCL", "nccl4py not found", "cuda13"),
    "no NCCL": (
        replace(GOOD, nccl={"version": "0.6.0"}), "NCCL", "library is not", "cuda13"),
    "CuPy fails": (
        replace(GOOD, cupy={"version": "14", "error": "OSError: libcublas.so.13"}),
        "cupy (cupy-cuda13x)", "libcublas", "--force-reinstall"),
    "old bindings": (
        replace(GOOD, packages=without(**{"cuda-bindings": "12.9.1"})), "cuda-bindings", "12.9.1",
        "cuda-bindings~=13.0"),
    "no NVRTC": (
        replace(GOOD, nvrtc={"error": "libnvrtc.so.13"}), "NVRTC", "libnvrtc", "cuda13"),
    "hiding": (
        replace(GOOD, before=("/opt/cuda/lib64/libnccl.so.2",)), "libraries", "libnccl.so.2",
        "unless it is meant"),
    "stubs": (
        replace(GOOD, before=("/opt/cuda/lib64/stubs/libcuda.so.1",)), "libraries", "only links",
        "take that folder out"),
    "no NVML": (
        replace(GOOD, machine=gpus.Machine("proc", CARDS, "580", 0, problem="no libnvidia-ml")),
        "NVML", "no libnvidia-ml", "comes with the driver"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_and_what_to_do(case):
    given, name, said, do = WRONG[case]
    (found,) = [f for f in gpu.judge(given) if f.name == name]
    assert found.state == "problem"
    assert said in found.value and do in found.install


def test_pairs_that_differ_are_told_one_by_one(monkeypatch):
    for name, value in nvml_standin.environment("hgx").items():
        monkeypatch.setenv(name, value)
    machine = gpus.ask()
    lines = [f for f in gpu.judge(replace(GOOD, machine=machine)) if "peer" in f.value]
    assert [f.name for f in lines] == ["between any two"]
    assert lines[0].value == "2 NVLinks and 2 NVLinks through switches; peer access: yes"
    pairs = (*machine.pairs[1:], replace(machine.pairs[0], links=0, peer="no: not supported"))
    split = replace(GOOD, machine=replace(machine, pairs=pairs, switch_links=(0, 0, 0, 0)))
    lines = [f for f in gpu.judge(split) if "peer" in f.value]
    assert (len(lines), lines[-1].value) == (
        6,
        "PCIe, one NUMA node; peer access: no: not supported",
    )
