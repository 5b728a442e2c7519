"""Numbers of bytes as people write them: ``1.5 GB``, by thousands."""

from __future__ import annotations

from .errors import ConfigError


def size(nbytes: int) -> str:
    """A number of bytes as people write it."""
    value = float(nbytes)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def parse_size(text: str) -> int:
    """Bytes from ``4GB``, ``500 MB``, ``2GiB`` or a plain number."""
    units = {"": 1, "b": 1}
    for power, letter in enumerate("kmgt", 1):
        units |= {letter: 1000**power, letter + "b": 1000**power, letter + "ib": 1024**power}
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text.strip()[len(number) :].strip().lower()
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if unit not in units or value < 0:
        raise ConfigError(f"memory: {text!r} given; needed is a size like 4GB, 500MB or 2GiB")
    return int(value * units[unit])
