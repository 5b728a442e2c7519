"""What the facts about GPUs mean: what there is, what is wrong, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .. import gpus
from .facts import Facts
from .finding import Finding, ok, size

_GROUP = "GPU"
_USE = "training on NVIDIA GPUs"
_WHY = {  # CUresult
    100: ("no device", "see nvidia-smi, and CUDA_VISIBLE_DEVICES"),
    802: ("the devices' fabric is not ready", "start nvidia-fabricmanager"),
    803: ("library and kernel module are of different versions", "reboot, or load the module anew"),
    804: ("the compatibility package of CUDA does not serve this device", "remove cuda-compat"),
    999: ("the driver fails", "modprobe nvidia-uvm; then see dmesg"),
}


def judge(facts: Facts) -> Iterator[Finding]:
    """The findings, in order. Where there is no device, missing packages are no problem."""
    yield _driver(facts)
    seen = gpus.visible(facts.machine.cards, facts.visible)
    yield from _devices(facts, seen)
    yield from _joints(facts.machine)
    yield from _files(facts)
    yield from _packages(facts, bool(seen))


def _problem(name: str, value: str, do: str) -> Finding:
    return Finding(_GROUP, name, "problem", value, "", do)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _driver(facts: Facts) -> Finding:
    machine, said = facts.machine, facts.driver
    if "code" in said:
        name = f"{machine.driver}, " if machine.driver else ""
        text = f"{name}runs CUDA {_version(said['cuda'])} and older"
        if said["code"] == 0 or (said["code"] == 100 and not machine.cards):
            return ok(_GROUP, "driver", text)
        if said["code"] == 100 and facts.visible is not None:
            return ok(_GROUP, "driver", text)  # what hides them is said of the devices
        why, do = _WHY.get(said["code"], ("cuInit failed", "see dmesg and nvidia-smi"))
        return _problem("driver", f"{text}; {why} (error {said['code']})", do)
    if facts.container and facts.module:
        what = "the host has a driver, which this container was not given"
        return _problem("driver", what, "docker run --gpus all (NVIDIA's container toolkit)")
    if facts.nodes:
        what = f"devices are in /dev, but its library does not load: {said.get('error', '')}"
        do = "in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility; else install the driver"
        return _problem("driver", what, do)
    if facts.hardware:
        what = f"none, though NVIDIA's device is on the PCI bus ({', '.join(facts.hardware)})"
        return _problem("driver", what, "install NVIDIA's driver: https://www.nvidia.com/drivers")
    what = "no GPU: no NVIDIA driver (libcuda.so.1), no /dev/nvidia*, nothing on the PCI bus"
    do = "a machine with an NVIDIA GPU and its driver (in a container: docker run --gpus all)"
    return Finding(_GROUP, "driver", "missing", what, _USE, do)


def _devices(facts: Facts, seen: list[gpus.Seen]) -> Iterator[Finding]:
    cards = facts.machine.cards
    if not cards:
        if facts.driver.get("code") is not None or facts.nodes:
            why = facts.machine.problem or "none is there"
            do = "see nvidia-smi; in a container: docker run --gpus all"
            yield _problem("devices", f"no GPU is visible: {why}", do)
        return
    if facts.machine.source != "nvml":
        yield _problem("NVML", facts.machine.problem, "libnvidia-ml.so.1 comes with the driver")
    if not seen:
        why = gpus.count(facts.machine, facts.visible, False)["why"]
        yield _problem("devices", f"no GPU is visible: {why}", "set it anew, or unset it")
    shown = {s.card.index for s in seen}
    for card in cards:
        words = [card.name or "a device"]
        if card.memory:
            words.append(f"{size(card.memory)}, {size(card.free)} free")
        if card.capability[0]:
            words.append("capability {}.{}".format(*card.capability))
        words += [card.bus] if card.bus else []
        if card.migs is not None:
            words.append(f"divided into {len(card.migs)} MIG instances")
        if seen and card.index not in shown:
            words.append(f"hidden by CUDA_VISIBLE_DEVICES={facts.visible}")
        yield ok(_GROUP, f"device {card.index}", ", ".join(words))
    if seen and seen[0].card.migs is not None:
        yield ok(_GROUP, "MIG", f"a process sees {seen[0].word} alone")


def _joints(machine: gpus.Machine) -> Iterator[Finding]:
    """What joins devices: one line where all pairs are alike, else one for each."""
    said = {}
    for pair in machine.pairs:
        through = min(machine.switch_links[pair.a], machine.switch_links[pair.b])
        ways = [f"{pair.links} NVLinks"] if pair.links else []
        ways += [f"{through} NVLinks through switches"] if through else []
        way = " and ".join(ways) or f"PCIe, {pair.way}"
        said[pair.a, pair.b] = f"{way}; peer access: {pair.peer}"
    if len(set(said.values())) == 1:
        yield ok(_GROUP, "between any two", next(iter(said.values())))
        return
    for (a, b), text in said.items():
        yield ok(_GROUP, f"{a} and {b}", text)


def _files(facts: Facts) -> Iterator[Finding]:
    closed = [path for path, opens in facts.nodes.items() if not opens]
    if closed:
        do = f"ls -l {closed[0]}; join its group, or have the device given to this container"
        yield _problem("/dev", f"may not be opened: {', '.join(closed)}", do)
    for path in facts.before:
        what = f"LD_LIBRARY_PATH has {path}"
        if "/stubs/" in path:
            yield _problem("libraries", f"{what}, which only links", "take that folder out of it")
        elif facts.packages and not path.rsplit("/", 1)[1].startswith("libcuda."):
            do = "take that folder out of it, unless it is meant"
            yield _problem("libraries", f"{what}, which is taken before the packages' own", do)


def _packages(facts: Facts, devices: bool) -> Iterator[Finding]:
    """What is installed, against each other and against the driver."""
    packages = facts.packages
    newest = (facts.machine.cuda or facts.driver.get("cuda", 13000)) // 1000
    extra = "cuda12" if newest < 13 else "cuda13"
    lack = "problem" if devices else "missing"
    install = f"pip install 'disttrain[{extra}]'"
    wheels = [name for name in packages if name == "cupy" or name.startswith("cupy-")]
    built = {name: int(name[9:11]) for name in wheels if name.startswith("cupy-cuda")}
    if not wheels:
        yield Finding(_GROUP, "cupy", lack, "not found", _USE, install)
    elif len(wheels) > 1:
        do = f"pip uninstall {' '.join(wheels)}; {install}"
        yield _problem("cupy", f"installed more than once: {', '.join(wheels)}", do)
    elif devices and built.get(wheels[0], 0) > newest:
        what = f"{wheels[0]} is for CUDA {built[wheels[0]]}, the driver runs CUDA {newest}"
        do = f"pip uninstall {wheels[0]}; {install} (or a newer driver)"
        yield _problem("cupy", what, do)
    else:
        yield _answered(facts.cupy, f"cupy ({wheels[0]})", devices, install, _cupy_says)
    yield from _nccl(facts, lack, install)
    major = built.get(wheels[0]) if len(wheels) == 1 else None
    yield from _bindings(facts, major, newest, lack, install)


def _answered(
    said: dict[str, Any], name: str, devices: bool, install: str, how: Callable[..., Any]
) -> Finding:
    wrong = said.get("error")
    if wrong is None or (not devices and "version" in said):
        return ok(_GROUP, name, how(said))
    return _problem(name, wrong, f"{install} --force-reinstall, and see the lines above")


def _cupy_says(said: dict[str, Any]) -> str:
    text = said["version"]
    if "runtime" in said:
        text += f", runtime of CUDA {_version(said['runtime'])}"
    if "devices" in said and "error" not in said:
        text += ", a product on the device is right"
    return text


def _nccl(facts: Facts, lack: str, install: str) -> Iterator[Finding]:
    use = f"collectives between GPUs; {_USE}"
    libraries = [name for name in facts.packages if name.startswith("nvidia-nccl-cu")]
    if len(libraries) > 1:
        do = f"pip uninstall {' '.join(libraries)}; {install}"
        yield _problem("NCCL packages", f"two write one file: {', '.join(libraries)}", do)
    if "nccl4py" not in facts.packages:
        yield Finding(_GROUP, "NCCL", lack, "nccl4py not found", use, install)
        return
    said = facts.nccl
    if "error" in said:
        yield _problem("NCCL", said["error"], f"{install} --force-reinstall")
    elif "nccl" not in said:
        what = f"nccl4py {said['version']} is here, NCCL's library is not"
        yield Finding(_GROUP, "NCCL", lack, what, use, install)
    else:
        yield ok(_GROUP, "NCCL", f"{said['nccl']} (nccl4py {said['version']}; {said['path']})")


def _bindings(
    facts: Facts, major: int | None, newest: int, lack: str, install: str
) -> Iterator[Finding]:
    version = facts.packages.get("cuda-bindings")
    if version is None:
        yield Finding(_GROUP, "cuda-bindings", lack, "not found", f"own kernels; {_USE}", install)
        return
    if major is not None and int(version.split(".")[0]) < major:
        what = f"{version}, and CuPy is for CUDA {major}"
        yield _problem("cuda-bindings", what, f"pip install 'cuda-bindings~={major}.0'")
    else:
        yield ok(_GROUP, "cuda-bindings", version)
    if "error" in facts.nvrtc:
        yield Finding(_GROUP, "NVRTC", lack, facts.nvrtc["error"], f"own kernels; {_USE}", install)
    elif lack == "problem" and int(facts.nvrtc["version"].split(".")[0]) > newest:
        what = f"{facts.nvrtc['version']}, whose code the driver (CUDA {newest}) does not load"
        yield _problem("NVRTC", what, f"pip install 'nvidia-cuda-nvrtc-cu{newest}'; {install}")
    else:
        yield ok(_GROUP, "NVRTC", facts.nvrtc["version"])
