"""A picture of how an array of one or two dimensions lies on devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ConfigError

_WIDTH = 10


def drawn(shape: Sequence[int], layout: Any) -> str:
    """Boxes of blocks, each with its devices; a vector is drawn as a row."""
    if len(shape) not in (1, 2):
        raise ConfigError(
            f"an array of {len(shape)} dimensions is to be drawn; one or two dimensions are needed"
        )
    full = (1, *shape) if len(shape) == 1 else tuple(shape)
    devices: dict[tuple, list] = {}
    for device, index in layout.blocks(tuple(shape)).items():
        slices = (slice(None), *index) if len(shape) == 1 else index
        at = tuple([s.indices(n)[0] for s, n in zip(slices, full, strict=True)])
        devices.setdefault(at, []).append(device)
    rows, columns = ([*sorted({at[i] for at in devices})] for i in (0, 1))
    cells = [[_label(devices[r, c]) for c in columns] for r in rows]
    width = max(_WIDTH, *[len(label) for row in cells for label in row])
    edge = ["─" * width] * len(columns)
    lines = [f"┌{'┬'.join(edge)}┐"]
    for i, row in enumerate(cells):
        lines += [f"├{'┼'.join(edge)}┤"] if i else []
        blank = f"│{'│'.join([' ' * width] * len(row))}│"
        lines += [blank, f"│{'│'.join([label.center(width) for label in row])}│", blank, blank]
    return "\n".join([*lines, f"└{'┴'.join(edge)}┘"])


def _label(devices: list) -> str:
    numbers = ",".join(str(d.id) for d in sorted(devices, key=lambda d: d.id))
    return f"{devices[0].platform.upper()} {numbers}"
