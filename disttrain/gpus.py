"""Which NVIDIA devices this machine has, without CUDA: asked of NVML, else read in /proc and /dev.

A launcher must count devices before its ranks are forked, and CUDA that was initialised before a
fork works in no child. So this needs the standard library alone and is a program as well: run by
its path it prints ``survey()`` as JSON, which ``ask()`` takes from a child process; a library that
hangs or crashes ends nothing else. Knows no CUDA, no Tensor and nothing of this package.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SECONDS = 20.0  # NVML loads the driver's state where no daemon keeps it, which takes seconds
MAX_LINKS = 36
NOT_SUPPORTED = 3

# nvmlGpuTopologyLevel_t and nvmlGpuP2PStatus_t
ANCESTORS = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one PCIe host bridge",
    40: "one NUMA node",
    50: "between NUMA nodes",
}
PEER_STATES = {
    0: "yes",
    1: "no: the chipset does not do it",
    2: "no: the device does not do it",
    3: "no: not between these PCIe bridges",
    4: "no: switched off in the driver's settings",
    5: "no: not supported",
    6: "unknown",
}


@dataclass(frozen=True)
class Card:
    """One device. ``index`` is NVML's number (in the order of PCI addresses), ``bus`` its address
    as sysfs writes it, ``migs`` the UUIDs of its instances (None: it is not divided)."""

    index: int
    uuid: str = ""
    bus: str = ""
    name: str = ""
    minor: int = -1
    memory: int = 0
    free: int = 0
    capability: tuple[int, int] = (0, 0)
    migs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Pair:
    """What joins cards ``a`` and ``b``: NVLinks, else the way over PCIe; whether peers may read."""

    a: int
    b: int
    links: int
    way: str
    peer: str


@dataclass(frozen=True)
class Machine:
    """What there is, and who said so: "nvml", "proc" or "dev". ``cuda`` is the newest version that
    the driver runs, as 13000. ``problem`` says what did not answer."""

    source: str
    cards: tuple[Card, ...] = ()
    driver: str = ""
    cuda: int = 0
    pairs: tuple[Pair, ...] = ()
    switch_links: tuple[int, ...] = ()  # NVLinks of each card that lead to no other card
    problem: str = ""


@dataclass(frozen=True)
class Seen:
    """A device as a process sees it: the card, and what CUDA_VISIBLE_DEVICES is for it alone."""

    card: Card
    word: str


def ask(seconds: float = SECONDS) -> Machine:
    """What ``survey`` finds, in a child process."""
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        if done.returncode == 0:
            return machine_of(json.loads(done.stdout))
        last = (done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1]
        problem = f"NVML: {last}"
    except subprocess.TimeoutExpired:
        problem = f"NVML did not answer within {seconds:g} s"
    except (OSError, ValueError) as error:
        problem = f"NVML: {error}"
    return from_files("/", problem)


def machine_of(fields: dict[str, Any]) -> Machine:
    """The other way round than ``dataclasses.asdict`` and JSON."""
    cards = tuple(
        Card(**{
            **card,
            "capability": tuple(card["capability"]),
            "migs": None if card["migs"] is None else tuple(card["migs"]),
        })
        for card in fields["cards"]
    )  # fmt: skip
    pairs = tuple(Pair(**pair) for pair in fields["pairs"])
    links = tuple(fields["switch_links"])
    return Machine(**{**fields, "cards": cards, "pairs": pairs, "switch_links": links})


# -- which of them a process sees -----------------------------------------------------------------


def visible(cards: Sequence[Card], given: str | None, each_alone: bool = False) -> list[Seen]:
    """The devices that CUDA counts under ``CUDA_VISIBLE_DEVICES=given`` (None: not set), in order.

    As the driver reads it: numbers, or beginnings of UUIDs, or MIG instances; the first word that
    fits nothing ends the list; a device that is named twice leaves none. A process sees one MIG
    instance at most, and then no whole card; with ``each_alone`` (every process is given one word
    of its own) all of them are listed.
    """
    if given is None:
        found = [s for card in cards for s in _parts(card)]
    else:
        found = []
        for word in (w.strip() for w in given.split(",")):
            seen = _named(cards, word)
            if seen is None:
                break
            found.append(seen)
        if len({s.word for s in found}) < len(found):
            return []
    if each_alone:
        return found
    divided = [s for s in found if s.card.migs is not None]
    return divided[:1] or found


def _parts(card: Card) -> list[Seen]:
    if card.migs is None:
        return [Seen(card, str(card.index))]
    return [Seen(card, uuid) for uuid in card.migs]


def _named(cards: Sequence[Card], word: str) -> Seen | None:
    """The device that a word means; None: there is none, or there are several."""
    if re.fullmatch(r"\+?\d+", word):
        index = int(word)
        parts = _parts(cards[index]) if index < len(cards) else []
        return parts[0] if parts else None
    old = re.fullmatch(r"MIG-(GPU-[0-9a-f-]+)/\d+/\d+", word)
    if old:
        whole = [c for c in cards if c.uuid == old[1] and c.migs]
        return Seen(whole[0], word) if whole else None
    if word.startswith("MIG-"):
        fits = [Seen(c, uuid) for c in cards for uuid in c.migs or () if uuid.startswith(word)]
    elif word.startswith("GPU-"):
        fits = [s for c in cards if c.uuid.startswith(word) for s in _parts(c)[:1]]
    else:
        return None
    return fits[0] if len(fits) == 1 else None


# -- NVML -----------------------------------------------------------------------------------------


class NvmlError(Exception):
    """``code``: of nvmlReturn_t."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class _Pci(ctypes.Structure):  # nvmlPciInfo_t
    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    ]

    def address(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"


class _Memory(ctypes.Structure):  # nvmlMemory_t
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Nvml:
    """NVIDIA's management library; raises OSError where there is none."""

    def __init__(self, library: str = "libnvidia-ml.so.1") -> None:
        self.lib = ctypes.CDLL(library)
        self.lib.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInit_v2")

    def call(self, name: str, *args: Any) -> None:
        try:
            function = getattr(self.lib, name)
        except AttributeError:
            raise NvmlError(NOT_SUPPORTED, f"{name}: this driver does not have it") from None
        code = function(*args)
        if code:
            text = (self.lib.nvmlErrorString(code) or b"unknown error").decode(errors="replace")
            raise NvmlError(code, f"{name}: {text}")

    def number(self, name: str, *args: Any, kind: type = ctypes.c_uint) -> int:
        """A function that gives one number by its last argument."""
        value = kind()
        self.call(name, *args, ctypes.byref(value))
        return int(value.value)

    def text(self, name: str, *args: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        self.call(name, *args, buffer, ctypes.c_uint(96))
        return buffer.value.decode(errors="replace")

    def handle(self, name: str, *args: Any) -> ctypes.c_void_p:
        value = ctypes.c_void_p()
        self.call(name, *args, ctypes.byref(value))
        return value


def survey(library: str = "libnvidia-ml.so.1", root: str = "/") -> Machine:
    """What NVML says, in this process; where it does not answer, what lies in /proc and /dev."""
    try:
        nvml = Nvml(library)
        count = nvml.number("nvmlDeviceGetCount_v2")
        handles = [
            nvml.handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(i)) for i in range(count)
        ]
        cards = tuple(_card(nvml, i, handle) for i, handle in enumerate(handles))
        pairs, rest = _joints(nvml, cards, handles)
        driver = nvml.text("nvmlSystemGetDriverVersion")
        cuda = nvml.number("nvmlSystemGetCudaDriverVersion_v2", kind=ctypes.c_int)
        return Machine("nvml", cards, driver, cuda, pairs, rest)
    except (OSError, NvmlError) as error:
        return from_files(root, str(error))


def _or(default: object, question: Callable[..., Any], *args: object) -> Any:
    """The answer to ``question(*args)``, or ``default`` where this device has none."""
    try:
        return question(*args)
    except NvmlError:
        return default


def _card(nvml: Nvml, index: int, handle: ctypes.c_void_p) -> Card:
    pci, memory = _Pci(), _Memory()
    nvml.call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
    _or(None, nvml.call, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    major, minor = ctypes.c_int(), ctypes.c_int()
    numbers = ctypes.byref(major), ctypes.byref(minor)
    _or(None, nvml.call, "nvmlDeviceGetCudaComputeCapability", handle, *numbers)
    return Card(
        index=index,
        uuid=nvml.text("nvmlDeviceGetUUID", handle),
        bus=pci.address(),
        name=nvml.text("nvmlDeviceGetName", handle),
        minor=_or(-1, nvml.number, "nvmlDeviceGetMinorNumber", handle),
        memory=memory.total,
        free=memory.free,
        capability=(major.value, minor.value),
        migs=_migs(nvml, handle),
    )


def _migs(nvml: Nvml, handle: ctypes.c_void_p) -> tuple[str, ...] | None:
    now, pending = ctypes.c_uint(), ctypes.c_uint()
    numbers = ctypes.byref(now), ctypes.byref(pending)
    _or(None, nvml.call, "nvmlDeviceGetMigMode", handle, *numbers)
    if not now.value:
        return None
    found = []
    for i in range(_or(0, nvml.number, "nvmlDeviceGetMaxMigDeviceCount", handle)):
        name = "nvmlDeviceGetMigDeviceHandleByIndex"
        part = _or(None, nvml.handle, name, handle, ctypes.c_uint(i))
        if part is not None:
            found.append(nvml.text("nvmlDeviceGetUUID", part))
    return tuple(found)


def _joints(
    nvml: Nvml, cards: Sequence[Card], handles: list[ctypes.c_void_p]
) -> tuple[tuple[Pair, ...], tuple[int, ...]]:
    """What joins each two cards; and each card's links that lead elsewhere (to a switch)."""
    ends = [list(_links(nvml, handle)) for handle in handles]
    pairs = []
    for a, one in enumerate(handles):
        for b, other in list(enumerate(handles))[a + 1 :]:
            way = _or(-1, nvml.number, "nvmlDeviceGetTopologyCommonAncestor", one, other)
            peer = _or(6, nvml.number, "nvmlDeviceGetP2PStatus", one, other, ctypes.c_int(0))
            links = ends[a].count(cards[b].bus)
            said = PEER_STATES.get(peer, "unknown")
            pairs.append(Pair(a, b, links, ANCESTORS.get(way, "unknown"), said))
    buses = {card.bus for card in cards}
    return tuple(pairs), tuple(sum(end not in buses for end in of) for of in ends)


def _links(nvml: Nvml, handle: ctypes.c_void_p) -> Iterator[str]:
    """Where each NVLink that is up leads to: a PCI address."""
    for link in range(MAX_LINKS):
        number = ctypes.c_uint(link)
        if _or(0, nvml.number, "nvmlDeviceGetNvLinkState", handle, number):
            pci = _Pci()
            name = "nvmlDeviceGetNvLinkRemotePciInfo_v2"
            _or(None, nvml.call, name, handle, number, ctypes.byref(pci))
            yield pci.address()


# -- without NVML ---------------------------------------------------------------------------------


def from_files(root: str, problem: str) -> Machine:
    """The devices that /proc/driver/nvidia names and /dev has; where the first is not there, those
    that /dev has."""
    nodes = sorted(
        int(name[6:]) for name in _names(root, "dev") if re.fullmatch(r"nvidia\d+", name)
    )
    found = []
    for bus in _names(root, "proc/driver/nvidia/gpus"):
        text = _read(root, f"proc/driver/nvidia/gpus/{bus}/information")
        said = dict(re.findall(r"^([^:\n]+):[ \t]*(.*)$", text, re.MULTILINE))
        minor = int(said.get("Device Minor", "-1"))
        if minor in nodes:
            found.append((bus.lower(), said.get("GPU UUID", ""), said.get("Model", ""), minor))
    if found:
        cards = [
            Card(i, uuid, bus, name, minor) for i, (bus, uuid, name, minor) in enumerate(found)
        ]
    else:
        cards = [Card(i, minor=minor) for i, minor in enumerate(nodes)]
    version = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", _read(root, "proc/driver/nvidia/version"))
    source = "proc" if found else "dev"
    return Machine(source, tuple(cards), version[1] if version else "", problem=problem)


def _names(root: str, folder: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(root, folder)))
    except OSError:
        return []


def _read(root: str, path: str) -> str:
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def count(machine: Machine, given: str | None, each_alone: bool) -> dict[str, Any]:
    """How many devices a process sees, and, where that is none, why."""
    found = visible(machine.cards, given, each_alone)
    if found or not machine.cards:
        return {"count": len(found), "why": machine.problem}
    there = f"there are {len(machine.cards)}, of which"
    shown = (
        "MIG shows no instance" if given is None else f"CUDA_VISIBLE_DEVICES={given!r} shows none"
    )
    return {"count": 0, "why": f"{there} {shown}"}


def main(words: Sequence[str]) -> None:
    """``survey`` as JSON; with "count" or "count-each" only the number of visible devices."""
    machine = survey()
    if words:
        said = count(machine, os.environ.get("CUDA_VISIBLE_DEVICES"), words[0] == "count-each")
    else:
        said = asdict(machine)
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1:])
