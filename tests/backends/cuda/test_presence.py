"""Whether there are devices: found out without starting CUDA, and said in a sentence if not."""

from disttrain.backends.cuda import presence
from disttrain.backends.cuda.presence import Presence
from disttrain.backends.device import platform as platforms
from disttrain.errors import DeviceError
from disttrain.gpus import Card, Machine

CARDS = tuple(Card(i, uuid=f"GPU-{i}") for i in range(3))


def test_what_is_missing_is_said(monkeypatch):
    answers = {
        "driver": True,
        "cupy": True,
        "nvml": Machine("nvml", CARDS, cuda=13000),
        "built": 13,
    }

    def library(name):
        if not answers["driver"]:
            raise OSError(name)

    monkeypatch.setattr(presence.ctypes, "CDLL", library)
    monkeypatch.setattr(presence, "find_spec", lambda name: answers["cupy"] or None)
    monkeypatch.setattr(presence, "_machine", lambda: answers["nvml"])
    monkeypatch.setattr(presence, "built_for", lambda: answers["built"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert presence.look() == Presence(3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert presence.look() == Presence(1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES='' hides all of the 3" in presence.look().why
    answers["nvml"] = Machine("nvml", CARDS, cuda=12080)
    assert "driver here is for CUDA 12.8, and the CuPy" in presence.look().why
    answers["nvml"] = Machine("files", CARDS)
    assert presence.look() == Presence(0, sure=False)
    answers["cupy"] = False
    assert "pip install 'disttrain[cuda13]'" in presence.look().why
    answers["driver"] = False
    assert "no NVIDIA driver" in presence.look().why


def test_asking_what_there_is_starts_nothing():
    def never():
        raise AssertionError("started")

    platforms.offer("toy", never, lambda: (2, ""))
    try:
        assert platforms.present("toy") == (2, "") and platforms.made("toy") is None
    finally:
        platforms.offer("toy", None)
    assert platforms.present("toy")[0] == 0

    def broken():
        raise DeviceError("it is broken")

    platforms.offer("toy", broken, lambda: None)
    try:
        assert platforms.present("toy") == (0, "it is broken")
    finally:
        platforms.offer("toy", None)
