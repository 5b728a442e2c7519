"""Packed sequences whose lengths are not known when a program is captured: their rows are all
steps of all sequences, padding too, and lengths stand in place of the sizes of batches.

A pass goes over the padding. What comes after a sequence's end is not seen: its last state is
taken from its last step, and the cell of an LSTM keeps its value behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import ops
from ..core import Tensor
from ..errors import ShapeError
from .recurrence import Step, along

_SHUT = 1e4  # a gate's argument of which the sigmoid is 1, and 0 of its negative, in all types


class Lengths(NamedTuple):
    """In place of the sizes of batches: ``lengths`` (sequences,) of at most ``steps``."""

    lengths: Tensor
    steps: int

    def inside(self) -> Tensor:
        """(steps, sequences, 1): whether a step belongs to the sequence."""
        places = ops.arange(self.steps, device=self.lengths.device).reshape(-1, 1)
        return (places < self.lengths).unsqueeze(-1)

    def padded(self, rows: Tensor) -> Tensor:
        """Rows as (steps, sequences, ...)."""
        return rows.reshape(self.steps, self.lengths.shape[0], *rows.shape[1:])

    def turned(self, x: Tensor) -> Tensor:
        """Each sequence of (steps, sequences, features) from its last step to its first."""
        places = ops.arange(self.steps, device=x.device).reshape(-1, 1)
        back = ops.where(places < self.lengths, self.lengths - 1 - places, places)
        return x.gather(0, back.unsqueeze(-1).expand(x.shape))

    def last(self, x: Tensor) -> Tensor:
        """The last step of each sequence, (1, sequences, features)."""
        at = (self.lengths - 1).reshape(1, -1, 1)
        return x.gather(0, at.expand(1, *x.shape[1:]))


def packed(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Lengths]:
    """The rows of padded sequences, and their lengths."""
    x = input.transpose(0, 1) if batch_first else input
    if lengths.ndim != 1 or lengths.shape[0] != x.shape[1]:
        raise ShapeError(
            "pack_padded_sequence: Expected `len(lengths)` to be equal to batch_size, but got "
            f"{list(lengths.shape)} (batch_size={x.shape[1]})"
        )
    sizes = Lengths(lengths.to(x.device).long(), x.shape[0])
    return x.reshape(-1, *x.shape[2:]), sizes


def unpacked(
    rows: Tensor, sizes: Lengths, batch_first: bool, value: float, total: int | None
) -> tuple[Tensor, Tensor]:
    """Padded sequences again, of as many steps as they had (or of ``total``), and their lengths."""
    x = sizes.padded(rows)
    inside = sizes.inside()
    inside = inside.reshape(*inside.shape[:2], *(1,) * (x.ndim - 2))
    x = ops.where(inside, x, value)
    if total is not None and total > sizes.steps:
        more = x.new_full((total - sizes.steps, *x.shape[1:]), value)
        x = ops.cat([x, more])
    return x.transpose(0, 1) if batch_first else x, sizes.lengths


def passed(
    sizes: Lengths, x: Tensor, start: tuple, step: Step, backwards: bool
) -> tuple[Tensor, tuple]:
    """One pass over rows: as ``recurrence.along``, each sequence up to its end."""
    gates = sizes.padded(step.of_input(x))
    gates = sizes.turned(gates) if backwards else gates
    if step.mode == "LSTM":
        gates = _kept_behind(gates, sizes.inside())
    out, state = along(gates, start, Step(step.mode, step.w, step.b, step.projection), False)
    ends = (sizes.last(out), *state[1:])
    out = sizes.turned(out) if backwards else out
    return out.reshape(-1, out.shape[-1]), ends


def _kept_behind(gates: Tensor, inside: Tensor) -> Tensor:
    """Gates of an LSTM that change its cell no more behind a sequence's end."""
    i, f, g, o = ops.chunk(gates, 4, -1)
    return ops.cat([ops.where(inside, i, -_SHUT), ops.where(inside, f, _SHUT), g, o], -1)


__all__ = ["Lengths", "packed", "passed", "unpacked"]
