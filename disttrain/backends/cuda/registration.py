"""CUDA is there to be asked for: importing this makes ``device("cuda")`` mean it. Costs nothing:
the packages beneath are loaded when the first device is used."""

from __future__ import annotations

import importlib

from ..device.platform import Platform, offer


def _make() -> Platform:
    return importlib.import_module(f"{__package__}.platform").start()


def _look() -> tuple[int, str] | None:
    seen = importlib.import_module(f"{__package__}.presence").look()
    return (seen.count, seen.why) if seen.sure else None


offer("cuda", _make, _look)
