"""Batches into micro-batches and back. Knows tensors and trees, no ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import ops, tree
from ...core.tensor import Tensor
from ...errors import ConfigError


class TensorChunkSpec:
    """Cut this tensor along ``split_dim``."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> tuple[TensorChunkSpec, ...]:
        """Specs of positional arguments from their dimensions."""
        return tuple(TensorChunkSpec(d) for d in chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> dict[str, TensorChunkSpec]:
        """Specs of keyword arguments from their dimensions."""
        return {name: TensorChunkSpec(d) for name, d in chunk_dims.items()}


class _Replicate:
    """Give the value whole to every micro-batch. (Also meant by None.)"""


class _CustomReducer:
    """Merge by ``reduce_fn(so_far, chunk)``, beginning with ``init_value``."""

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


def _wholes(value: object, spec: Any) -> list[tuple[Any, Any]]:
    """(leaf, spec of the leaf) for all leaves of ``value``; ``spec`` may stop at any depth."""
    if spec is None or isinstance(spec, (TensorChunkSpec, _Replicate, _CustomReducer)):
        return [(leaf, spec) for leaf in tree.leaves(value)]
    if isinstance(value, dict):
        return [pair for key in value for pair in _wholes(value[key], spec.get(key))]
    if isinstance(value, (list, tuple)):
        return [pair for part, s in zip(value, spec, strict=True) for pair in _wholes(part, s)]
    raise ConfigError(
        f"pipeline: the chunk spec {spec!r} was given for a {type(value).__name__}; needed is a "
        "TensorChunkSpec, None (give it whole), or the form of the value with these inside"
    )


def _default(value: dict | tuple) -> Any:
    return tree.map(lambda x: TensorChunkSpec(0) if isinstance(x, Tensor) else _Replicate(), value)


def _pieces(
    leaf: Tensor | int, spec: TensorChunkSpec | _Replicate | None, chunks: int
) -> Sequence[Any]:
    if not isinstance(spec, TensorChunkSpec) or not isinstance(leaf, Tensor):
        return [leaf] * chunks
    dim = spec.split_dim
    if not -leaf.ndim <= dim < leaf.ndim or leaf.shape[dim] < chunks:
        raise ConfigError(
            f"pipeline: a tensor of shape {list(leaf.shape)} was given to be cut along dimension "
            f"{dim} into {chunks} micro-batches; needed is a size of {chunks} or more there; use "
            "fewer micro-batches, or say with args_chunk_spec/kwargs_chunk_spec how to cut it"
        )
    pieces = ops.api.tensor_split(leaf, chunks, dim)
    if leaf.requires_grad and leaf.is_leaf:
        for piece in pieces:
            piece.retain_grad()
    return pieces


def split_args_kwargs_into_chunks(
    args: tuple,
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: tuple | None = None,
    kwargs_chunk_spec: dict | None = None,
) -> tuple[list[tuple], list[dict]]:
    """The arguments of ``chunks`` micro-batches.

    Tensors are cut along dimension 0, other values are given whole, unless the specs (in the form
    of ``args`` and ``kwargs``) say otherwise. Sizes that do not divide give pieces that differ by
    one. Raises ``ConfigError`` for tensors smaller than ``chunks``.
    """
    whole = (tuple(args), dict(kwargs or {}))
    specs = (
        _default(whole[0]) if args_chunk_spec is None else args_chunk_spec,
        _default(whole[1]) if kwargs_chunk_spec is None else kwargs_chunk_spec,
    )
    rebuild = tree.flatten(whole)[1]
    columns = [_pieces(leaf, spec, chunks) for leaf, spec in _wholes(whole, specs)]
    rows = [rebuild([column[i] for column in columns]) for i in range(chunks)]
    return [row[0] for row in rows], [row[1] for row in rows]


def split_target(target: Tensor, chunks: int) -> list[Any]:
    """``target`` (a tensor, or a tree of them) for each micro-batch."""
    return [row[0] for row in split_args_kwargs_into_chunks((target,), None, chunks)[0]]


def merge_chunks(chunks: list[Any], chunk_spec: object) -> Any:
    """The whole from its ``chunks``: tensors are put together along dimension 0, or as
    ``chunk_spec`` (in the form of a chunk) says; other values must be equal."""
    rows = [tree.leaves(chunk) for chunk in chunks]
    if len({len(row) for row in rows}) != 1:
        raise ConfigError(
            f"pipeline: the micro-batches gave {sorted({len(row) for row in rows})} results each; "
            "needed is the same form from all"
        )
    if chunk_spec is None:
        specs: list = [TensorChunkSpec(0)] * len(rows[0])
    else:
        specs = [spec for _, spec in _wholes(chunks[0], chunk_spec)]
    merged = [_merge([row[i] for row in rows], spec) for i, spec in enumerate(specs)]
    return tree.flatten(chunks[0])[1](merged)


def _merge(values: list[Any], spec: TensorChunkSpec | _CustomReducer | None) -> Any:
    if isinstance(spec, _CustomReducer):
        total = spec.init_value
        for value in values:
            total = spec.reduce_fn(total, value)
        return total
    if isinstance(spec, TensorChunkSpec) and isinstance(values[0], Tensor):
        if values[0].ndim == 0:
            return ops.api.stack(values)
        return ops.api.cat(values, spec.split_dim)
    if any(isinstance(v, Tensor) or v != values[0] for v in values[1:]):
        raise ConfigError(
            f"pipeline: the micro-batches gave different values ({values[0]!r}, ...) for a result "
            "that is not cut; say with output_merge_spec how to merge it"
        )
    return values[0]
