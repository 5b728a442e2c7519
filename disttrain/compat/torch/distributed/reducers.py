"""DDP's inner parts under the names by which programs build wrappers of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import disttrain as dt

from ....distributed.collectives.coalesced import broadcast_coalesced
from ....distributed.ddp.module import BufferCommHookLocation
from ....distributed.ddp.reducer.buckets import ParamMeta
from ....distributed.ddp.reducer.caps import DEFAULT_CAP_MB, FIRST_CAP_MB, MIB, BucketCaps
from ....distributed.ddp.reducer.messages import Messages
from ....distributed.ddp.reducer.mixed_precision import MixedPrecision
from ....distributed.ddp.reducer.reducer import Reducer as Inner
from ....distributed.ddp.reducer.reducer import Settings
from ....errors import DTypeError

NAMES = {
    "_BucketCapacityConfig": BucketCaps,
    "_MixedPrecision": MixedPrecision,
    "_DEFAULT_BUCKET_CAP_MB": DEFAULT_CAP_MB,
    "_MB_TO_BYTES": MIB,
    "_BufferCommHookLocation": BufferCommHookLocation,
}


class Reducer:
    """``torch.distributed.Reducer``: averages the gradients of ``params`` in the next backward
    after ``prepare_for_backward``. ``bucket_indices``: which travel together, of one type each; the
    order and the sizes of buckets are the project's own."""

    def __init__(
        self,
        params: Sequence[Any],
        bucket_indices: Sequence[Sequence[int]],
        per_bucket_size_limits: Sequence[int],
        process_group: Any,
        expect_sparse_gradients: Sequence[bool] = (),
        bucket_bytes_cap: int = DEFAULT_CAP_MB * MIB,
        find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = False,
        param_to_name_mapping: dict[int, str] | None = None,
        first_bucket_bytes_cap: int = FIRST_CAP_MB * MIB,
    ) -> None:
        params = list(params)
        for indices in bucket_indices:
            kinds = {params[i].dtype for i in indices}
            if len(kinds) > 1:
                raise DTypeError(
                    f"Reducer: a bucket of parameters of types {sorted(map(str, kinds))} was given;"
                    " needed are buckets of one type each"
                )
        names = param_to_name_mapping or {}
        metas = [
            ParamMeta(names.get(i, f"parameter {i}"), tuple(p.shape), p.array.dtype)
            for i, p in enumerate(params)
        ]
        caps = BucketCaps(bucket_bytes_cap, (), first_bucket_bytes_cap)
        settings = Settings(caps, find_unused_parameters, gradient_as_bucket_view)
        messages = Messages(dt.nn.Module(), metas, process_group)
        self._inner = Inner(params, metas, process_group, settings, lambda: True, messages)

    def prepare_for_forward(self) -> None:
        """A forward comes."""
        self._inner.rebuild()

    def prepare_for_backward(self, output: object) -> None:
        """The backward of ``output`` is averaged."""
        self._inner.prepare(output)

    def _rebuild_buckets(self) -> bool:
        return self._inner.rebuild()


def _broadcast_coalesced(
    process_group: object, tensors: Sequence[Any], buffer_size: int, src: int = 0
) -> None:
    broadcast_coalesced(process_group, tensors, buffer_size, src)


def _compute_bucket_assignment_by_size(
    tensors: Sequence[Any], bucket_size: Sequence[int], expect_sparse_gradient: Sequence[bool] = (),
    tensor_indices: Sequence[int] = (),
) -> tuple[list[list[int]], list[int]]:  # fmt: skip
    """Tensors in order, those of one type together until they have the limit (in bytes) or more;
    each type goes through the limits on its own. The buckets, and the limit of each."""
    numbers = list(tensor_indices) or list(range(len(tensors)))
    open_: dict[Any, list[int]] = {}
    sizes: dict[Any, int] = {}
    turns: dict[Any, int] = {}
    closed: list[tuple[list[int], int]] = []
    for k, t in enumerate(tensors):
        if k < len(expect_sparse_gradient) and expect_sparse_gradient[numbers[k]]:
            closed.append(([numbers[k]], 0))
            continue
        kind = t.dtype
        open_.setdefault(kind, []).append(numbers[k])
        sizes[kind] = sizes.get(kind, 0) + t.nbytes
        limit = bucket_size[min(turns.get(kind, 0), len(bucket_size) - 1)]
        if sizes[kind] >= limit:
            closed.append((open_.pop(kind), limit))
            sizes[kind] = 0
            turns[kind] = turns.get(kind, 0) + 1
    for kind, rest in open_.items():
        closed.append((rest, bucket_size[min(turns.get(kind, 0), len(bucket_size) - 1)]))
    if not tensor_indices:
        closed.sort(key=lambda bucket: min(bucket[0]))
    return [members for members, _ in closed], [limit for _, limit in closed]


C10D_NAMES = {
    "_compute_bucket_assignment_by_size": _compute_bucket_assignment_by_size,
    "Reducer": Reducer,
    "_broadcast_coalesced": _broadcast_coalesced,
    "_DEFAULT_FIRST_BUCKET_BYTES": FIRST_CAP_MB * MIB,
}
