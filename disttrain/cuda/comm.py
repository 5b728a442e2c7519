"""``torch.cuda.comm``: tensors copied, added and cut over the devices of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..errors import ShapeError
from ..ops.api import cat, chunk, split
from .which import device_count, index_of


def broadcast(
    tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """A copy on each of ``devices``, or into each of ``out``."""
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"broadcast: Exactly one of 'devices' and 'out' must be specified, but got "
            f"devices={devices} and out={out}"
        )
    if out is not None:
        return tuple([o.copy_(tensor) for o in out])
    return tuple([_on(tensor, d) for d in devices or ()])


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 10485760
) -> tuple[tuple[Tensor, ...], ...]:
    """The same for many tensors: a tuple for each device."""
    return tuple([tuple([_on(t, d) for t in tensors]) for d in devices])


def reduce_add(inputs: Sequence[Tensor], destination: object = None) -> Tensor:
    """The sum of tensors of one shape on several devices, on ``destination`` (None: the current
    one)."""
    if len({tuple(t.shape) for t in inputs}) != 1:
        shapes = [list(t.shape) for t in inputs]
        raise ShapeError(f"reduce_add: shapes {shapes} given; they must be the same")
    where = index_of(destination)
    total = _on(inputs[0], where)
    for t in inputs[1:]:
        total = total + _on(t, where)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: object = None, buffer_size: int = 10485760
) -> tuple[Tensor, ...]:
    """The same for the tensors that each device has."""
    return tuple([reduce_add(together, destination) for together in zip(*inputs, strict=True)])


def scatter(
    tensor: Tensor, devices: Sequence[Any] | None = None,
    chunk_sizes: Sequence[int] | None = None, dim: int = 0, streams: object = None, *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Pieces along ``dim``, one on each of ``devices`` (None: all), or into each of ``out``.
    Without ``chunk_sizes`` all are of one size but the last, and there may be fewer of them."""
    if out is not None:
        for name, given in (("devices", devices), ("chunk_sizes", chunk_sizes)):
            if given is not None:
                raise _beside_out("scatter", name, given)
        sizes = [o.shape[dim] for o in out]
        pieces = split(tensor, sizes, dim)
        return tuple([o.copy_(p) for o, p in zip(out, pieces, strict=True)])
    where = list(range(device_count())) if devices is None else list(devices)
    if chunk_sizes is not None and len(chunk_sizes) != len(where):
        raise RuntimeError(
            "scatter: Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(where)} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    pieces = (
        chunk(tensor, len(where), dim)
        if chunk_sizes is None
        else split(tensor, list(chunk_sizes), dim)
    )
    return tuple([_on(p, d) for p, d in zip(pieces, where)])


def gather(
    tensors: Sequence[Tensor],
    dim: int = 0,
    destination: object = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Tensors of several devices, joined along ``dim`` on ``destination`` (None: the current one;
    -1 or "cpu": the host), or in ``out``."""
    if out is not None:
        if destination is not None:
            raise _beside_out("gather", "destination", destination)
        joined = cat([t.to(out.device) for t in tensors], dim)
        if joined.shape != out.shape:
            raise ShapeError(
                f"gather: out of shape {list(out.shape)} given; the joined tensors have "
                f"{list(joined.shape)}"
            )
        return out.copy_(joined)
    if str(destination) in ("-1", "cpu"):
        return cat([t.cpu() for t in tensors], dim)
    where = index_of(destination)
    return cat([_on(t, where) for t in tensors], dim)


def _beside_out(where: str, name: str, given: object) -> RuntimeError:
    return RuntimeError(
        f"{where}: '{name}' must not be specified when 'out' is specified, but got {name}={given}"
    )


def _on(t: Tensor, where: int) -> Tensor:
    return t.to(f"cuda:{index_of(where)}", non_blocking=True)


__all__ = [
    "broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter",
]  # fmt: skip
