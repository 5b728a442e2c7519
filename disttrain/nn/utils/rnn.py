"""Sequences of different lengths as one padded tensor, and back."""

from __future__ import annotations

from collections.abc import Sequence

from ... import ops
from ...core import Tensor
from ...errors import ConfigError, ShapeError


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (L_i, ...) as one tensor (longest L, N, ...), or (N, longest L, ...)."""
    if not sequences:
        raise ShapeError("pad_sequence: no sequences given; needed at least one")
    if padding_side not in ("left", "right"):
        raise ConfigError(f"pad_sequence: padding_side={padding_side!r}; needed 'left' or 'right'")
    rest = tuple(sequences[0].shape[1:])
    for i, s in enumerate(sequences):
        if s.ndim < 1 or tuple(s.shape[1:]) != rest:
            raise ShapeError(
                f"pad_sequence: sequence {i} has shape {list(s.shape)}, the first "
                f"{list(sequences[0].shape)}; all dimensions after the first must be equal"
            )
    longest = max(s.shape[0] for s in sequences)
    rows = []
    for s in sequences:
        missing = longest - s.shape[0]
        ends = (missing, 0) if padding_side == "left" else (0, missing)
        widths = (0, 0) * (s.ndim - 1) + ends
        rows.append(ops.pad(s, widths, "constant", padding_value) if missing else s)
    return ops.stack(rows, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The inverse of ``pad_sequence``, given the lengths."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, : int(n)] for i, n in enumerate(lengths.tolist())]
