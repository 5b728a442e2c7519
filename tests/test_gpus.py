"""Devices are counted without CUDA: by a stand-in of NVML through ctypes, and in /proc and /dev."""

from __future__ import annotations

from dataclasses import replace

import pytest
from standins import nvml as nvml_standin

from disttrain import gpus
from disttrain.gpus import Card, Machine, Pair, visible


def ask(monkeypatch, machine, seconds=gpus.SECONDS):
    for name, value in nvml_standin.environment(machine).items():
        monkeypatch.setenv(name, value)
    return gpus.ask(seconds)


def test_what_nvml_says_of_four_devices(monkeypatch):
    found = ask(monkeypatch, "hgx")
    assert (found.source, found.driver, found.cuda, found.problem) == (
        "nvml",
        "580.65.06",
        13000,
        "",
    )
    assert [card.bus for card in found.cards] == [
        f"0000:{b}:00.0" for b in ("1b", "43", "9c", "df")
    ]
    assert found.cards[2] == Card(
        2, "GPU-20000000-aaaa-bbbb-cccc-0123456789ab", "0000:9c:00.0", "NVIDIA H100 80GB HBM3", 2,
        80 << 30, 79 << 30, (9, 0), None,
    )  # fmt: skip
    assert len(found.pairs) == 6 and found.switch_links == (2, 2, 2, 2)
    assert found.pairs[0] == Pair(0, 1, 2, "one NUMA node", "yes")
    assert found.pairs[1] == Pair(0, 2, 2, "between NUMA nodes", "yes")


def test_what_nvml_says_of_a_divided_device(monkeypatch):
    found = ask(monkeypatch, "mig")
    first, second = found.cards
    assert first.migs == tuple(f"MIG-0{i}000000-aaaa-bbbb-cccc-0123456789ab" for i in (0, 1))
    assert second.migs is None
    assert found.pairs == (Pair(0, 1, 0, "one NUMA node", "no: the device does not do it"),)


@pytest.mark.parametrize(
    "machine, said",
    [
        ("driverless", "Driver Not Loaded"),
        ("mismatch", "version mismatch"),
        ("crash", "NVML: ended with code -6"),
        ("hang", "did not answer within 0.3 s"),
    ],
)
def test_a_library_that_fails_is_told_and_ends_nothing(monkeypatch, machine, said):
    found = ask(monkeypatch, machine, 0.3 if machine == "hang" else gpus.SECONDS)
    assert not found.cards and said in found.problem


def test_without_the_library_the_files_say_it(tmp_path):
    for bus, minor in (("0000:9c:00.0", 1), ("0000:1b:00.0", 0), ("0000:df:00.0", 2)):
        folder = tmp_path / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        text = f"Model: \t\t NVIDIA L4\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)
    version = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\nGCC version:  gcc 12\n"
    )
    (tmp_path / "proc/driver/nvidia/version").write_text(version)
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).write_text("")
    found = gpus.survey(library="libnvidia-ml.so.none", root=str(tmp_path))
    assert (found.source, found.driver) == ("proc", "550.54.15")
    assert "libnvidia-ml.so.none" in found.problem
    expected = [("0000:1b:00.0", "GPU-0"), ("0000:9c:00.0", "GPU-1")]  # no node: not given to us
    assert [(c.bus, c.uuid) for c in found.cards] == expected
    (tmp_path / "proc").rename(tmp_path / "elsewhere")
    found = gpus.survey(library="libnvidia-ml.so.none", root=str(tmp_path))
    assert (found.source, [c.minor for c in found.cards]) == ("dev", [0, 1])


CARDS = [Card(i, uuid=f"GPU-{'abcd'[i]}1-2", bus=f"0000:0{i}:00.0") for i in range(4)]
DIVIDED = [replace(CARDS[0], migs=("MIG-a1", "MIG-b2")), CARDS[1], replace(CARDS[2], migs=())]


@pytest.mark.parametrize(
    "given, words",
    [
        (None, "0 1 2 3"),
        ("", ""),
        ("2,0", "2 0"),
        (" 1 , 3 ", "1 3"),
        ("1,9,2", "1"),  # what fits nothing ends the list
        ("-1", ""),
        ("0,-1,2", "0"),
        ("1,1", ""),  # twice
        ("0,x", "0"),
        ("GPU-c1,GPU-a1-2", "2 0"),
        ("GPU-", ""),  # of several
        ("GPU-q", ""),
        ("NoDevFiles", ""),
    ],
)
def test_visible_devices(given, words):
    assert [s.word for s in visible(CARDS, given)] == words.split()


@pytest.mark.parametrize(
    "given, alone, words",
    [
        (None, False, "MIG-a1"),  # an instance hides whole cards, and is the only one
        (None, True, "MIG-a1 MIG-b2 1"),
        ("MIG-b2,MIG-a1", False, "MIG-b2"),
        ("MIG-b2,MIG-a1", True, "MIG-b2 MIG-a1"),
        ("1", False, "1"),
        ("0", False, "MIG-a1"),
        ("2", False, ""),  # divided, without an instance
        ("MIG-GPU-b1-2/1/0", False, ""),
    ],
)
def test_visible_instances(given, alone, words):
    assert [s.word for s in visible(DIVIDED, given, alone)] == words.split()


def test_old_names_of_instances():
    card = replace(CARDS[0], uuid="GPU-ab12-cd", migs=("MIG-GPU-ab12-cd/1/0",))
    assert [s.card for s in visible([card], "MIG-GPU-ab12-cd/1/0")] == [card]


def test_why_there_is_none():
    machine = Machine("nvml", tuple(CARDS))
    assert gpus.count(machine, "7", False) == {
        "count": 0,
        "why": "there are 4, of which CUDA_VISIBLE_DEVICES='7' shows none",
    }
    assert gpus.count(Machine("dev", problem="no library"), None, False)["why"] == "no library"
    assert "MIG shows no" in gpus.count(Machine("nvml", (DIVIDED[2],)), None, False)["why"]
