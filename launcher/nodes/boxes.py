"""The black boxes of all nodes, gathered on the first one: put into the log directory, and told."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable

from disttrain.comm.job.blackbox import RANK_BYTES, Box
from disttrain.errors import CommError
from disttrain.watch import summary
from disttrain.watch.reading import Rank, read_all

_MOST_RANKS = 4096
_MOST_BYTES = RANK_BYTES * _MOST_RANKS  # of one box; what claims to be more is none
_MOST_LINES = 64


def told(found: Iterable[tuple[int, bytes]], log_dir: str | None) -> list[str]:
    """One report of all: which rank, on which node, in or after which call, from which line. The
    boxes are kept in ``log_dir``, as those of their own nodes are, where these are not there."""
    lines: list[str] = []
    nodes = 0
    for place, packed in found:
        box = _opened(packed)
        if box is None:
            lines.append(f"  node {place}: its black box cannot be read")
            continue
        nodes += 1
        with contextlib.closing(box):
            if log_dir is not None:
                _keep(box, place, log_dir)
            host, ranks = box.about.get("host", "?"), read_all(box)
            latest = summary.latest(ranks)
            lines += [f"  node {place} ({host}): {_stood(rank, latest)}" for rank in ranks]
    if not nodes:
        return []
    left = len(lines) - _MOST_LINES
    lines = [*lines[:_MOST_LINES], *([f"  and {left} more"] if left > 0 else [])]
    where = f"; `disttrain blackbox {log_dir}` shows them" if log_dir is not None else ""
    whose = f"all {nodes} nodes" if nodes > 1 else "one node, the only one that could tell,"
    return [f"where the ranks of {whose} stood (black boxes){where}:", *lines]


def _stood(r: Rank, latest: int) -> str:
    """How a rank ended, and what it was in or did last."""
    words = r.words
    how = f"exit code {words.ended - 1}" if words.ended else "no end was noted"
    if words.ended > 128:
        how = f"signal {words.ended - 129}"
    last = summary.summary(r, words.ended_at or latest, 1)
    return f"rank {r.rank}, step {words.step}, {how}: {last[0] if last else 'no operation'}"


def _opened(packed: bytes) -> Box | None:
    """The box; None where it is none, or not whole."""
    try:
        unpacks = zlib.decompressobj()
        data = unpacks.decompress(packed, _MOST_BYTES)
        fd = os.memfd_create("disttrain-box", os.MFD_CLOEXEC)
        os.pwrite(fd, data, 0)
    except (zlib.error, OSError):
        return None
    try:
        return Box(fd, writable=False)
    except (CommError, ValueError, OSError):
        os.close(fd)
        return None


def _keep(box: Box, place: int, log_dir: str) -> None:
    """Where the node itself would have put it, unless it has (in a folder that all share)."""
    attempt = f"attempt_{int(box.about.get('generation', 1)) - 1}"
    folder = os.path.join(log_dir, f"node_{place}", attempt)
    path = os.path.join(folder, summary.NAME)
    with contextlib.suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(bytes(box.buffer))
