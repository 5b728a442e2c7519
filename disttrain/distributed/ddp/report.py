"""What a wrapper tells of itself: PyTorch's logging data, and the same for people.

Knows the reducer by its attributes.
"""

from __future__ import annotations

from typing import Any

from .reducer.caps import MIB

_MICRO = 1e6


def logging_data(ddp: Any) -> dict[str, Any]:
    """A flat dict under PyTorch's keys; times in nanoseconds. ``straggler_rank`` and what it costs
    are our own."""
    r, stats = ddp.reducer, ddp.reducer.stats
    straggler, lag = stats.straggler()
    sizes = ", ".join(str(b.nbytes) for b in r.buckets)
    rebuilt = r.arrivals is None and not (r.settings.find_unused and not r.static)
    return {
        "world_size": r.group.size,
        "rank": r.group.rank,
        "module_name": type(ddp.module).__name__,
        "backend_name": r.group.transport.kind,
        "dtypes": ", ".join(sorted({p.array.dtype.name for p in r.params})),
        "num_parameter_tensors": len(r.params),
        "total_parameter_size_bytes": sum(p.array.nbytes for p in r.params),
        "bucket_cap_bytes": ddp.bucket_caps.bucket_bytes_cap,
        "first_bucket_bytes": ddp.bucket_caps.first_bucket_bytes_cap,
        "find_unused_parameters": int(ddp.find_unused_parameters),
        "broadcast_buffers": int(ddp.broadcast_buffers),
        "gradient_as_bucket_view": int(ddp.gradient_as_bucket_view),
        "static_graph": int(r.static),
        "has_sync_bn": int(any(type(m).__name__ == "SyncBatchNorm" for m in ddp.modules())),
        "comm_hook": "" if r.hook is None else getattr(r.hook[0], "__qualname__", repr(r.hook[0])),
        "bucket_sizes": sizes if not rebuilt else str(sum(b.nbytes for b in r.buckets)),
        "has_rebuilt_buckets": int(rebuilt),
        "rebuilt_bucket_sizes": sizes if rebuilt else "",
        "iteration": r.steps,
        "unused_parameter_size": sum(r.params[i].array.nbytes for i in r.unused),
        "forward_compute_time": _nanos(stats.last[0]),
        "backward_compute_time": _nanos(stats.last[1] - stats.last[3]),
        "backward_comm_time": _nanos(stats.last[2]),
        "backward_compute_comm_overlap_time": _nanos(stats.overlap),
        "avg_forward_compute_time": _nanos(stats.means[0] if stats.means else 0.0),
        "avg_backward_compute_time": _nanos(_mean(stats, 1) - _mean(stats, 3)),
        "avg_backward_comm_time": _nanos(_mean(stats, 2)),
        "avg_backward_compute_comm_overlap_time": _nanos(_mean(stats, 2) - _mean(stats, 3)),
        "avg_waiting_time": _nanos(_mean(stats, 3)),
        "bytes_per_step": sum(flat.nbytes for flat in r.flats),
        "straggler_rank": r.group.ranks[straggler],
        "straggler_lag": _nanos(lag),
    }


def text(ddp: Any) -> str:
    """The same for people, in a few lines."""
    r, stats = ddp.reducer, ddp.reducer.stats
    forward, backward, comm, wait = (_mean(stats, k) for k in range(4))
    straggler, lag = stats.straggler()
    step = forward + backward or 1.0
    lines = [
        f"DDP on rank {r.group.ranks[r.group.rank]} of {r.group.size}: {r.steps} synchronised "
        "steps",
        f"  {len(r.params)} parameters in {len(r.buckets)} buckets, "
        f"{sum(flat.nbytes for flat in r.flats) / MIB:.2f} MiB per step",
        f"  forward {forward * _MICRO:.0f} us, backward {backward * _MICRO:.0f} us; communication "
        f"{comm * _MICRO:.0f} us, of which {(comm - wait) * _MICRO:.0f} us beside backward",
        f"  waiting {wait * _MICRO:.0f} us ({100 * wait / step:.0f} % of forward and backward)",
    ]
    if r.group.size > 1:
        lines.append(
            f"  the others wait for rank {r.group.ranks[straggler]}: {lag * _MICRO:.0f} us more "
            "than it waits itself"
        )
    return "\n".join(lines)


def _mean(stats: Any, k: int) -> float:
    return stats.means[k] if stats.means else 0.0


def _nanos(seconds: float) -> int:
    return max(int(seconds * 1e9), 0)
