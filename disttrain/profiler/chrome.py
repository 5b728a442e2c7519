"""Events as JSON for chrome://tracing, Perfetto and TensorBoard: bars, memory, and arrows from
forward to backward and from rank to rank. Pure, but for files."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .events import COLLECTIVE, Event


def trace(
    events: Iterable[Event], memory: Iterable[tuple[float, int, int]], pid: int,
    facts: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """The whole file. ``memory``: (time, bytes, address) of what was taken and given back;
    ``facts``: what else stands at its top ("distributedInfo" tells the rank)."""
    listed = list(events)
    rows = [_bar(e, pid) for e in listed]
    rows += [*_backward_arrows(listed, pid), *_rank_arrows(listed, pid)]
    rows += _memory(memory, pid)
    where = facts.get("distributedInfo")
    if where is not None:
        name = {"name": f"rank {where['rank']}"}
        rows.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": name})
    return {"schemaVersion": 1, **facts, "displayTimeUnit": "ms", "traceEvents": rows}


def _bar(e: Event, pid: int) -> dict[str, Any]:
    args: dict[str, Any] = {"shapes": [list(s) for s in e.input_shapes], **e.details}
    if e.stack:
        args["Call stack"] = ";".join(e.stack)
    if e.sequence_nr >= 0:
        args["Sequence number"] = e.sequence_nr
    if e.forward_nr >= 0:
        args["Fwd sequence number"] = e.forward_nr
    if e.cpu_memory_usage:
        args["Bytes"] = e.cpu_memory_usage
    return {
        "name": e.name, "ph": "X", "cat": e.kind, "ts": e.start, "dur": e.cpu_time, "pid": pid,
        "tid": e.thread, "args": args,
    }  # fmt: skip


def _arrow(ph: str, name: str, number: int, e: Event, pid: int, at: float) -> dict[str, Any]:
    row = {"ph": ph, "cat": name, "name": name, "id": number, "pid": pid, "tid": e.thread, "ts": at}
    return row | {"bp": "e"} if ph == "f" else row


def _backward_arrows(events: list[Event], pid: int) -> list[dict[str, Any]]:
    """From each operation of forward to the first one that its node has run."""
    made = {e.sequence_nr: e for e in events if e.sequence_nr >= 0}
    rows, seen = [], set()
    for e in events:
        number = e.forward_nr
        if number in made and number not in seen:
            seen.add(number)
            start = made[number]
            rows.append(_arrow("s", "fwdbwd", number, start, pid, start.start))
            rows.append(_arrow("f", "fwdbwd", number, e, pid, e.start))
    return rows


def _rank_arrows(events: list[Event], pid: int) -> list[dict[str, Any]]:
    """Of each collective an arrow that begins on the first rank of its group and ends on the
    others: in files that were merged."""
    rows = []
    for e in events:
        if e.kind == COLLECTIVE and "Flow" in e.details:
            first = e.details.get("Group rank") == e.details.get("Flow from", 0)
            number = zlib.crc32(e.details["Flow"].encode())
            at = e.start if first else e.end
            rows.append(_arrow("s" if first else "f", "ranks", number, e, pid, at))
    return rows


def _memory(memory: Iterable[tuple[float, int, int]], pid: int) -> list[dict[str, Any]]:
    rows, total = [], 0
    for at, count, address in sorted(memory):
        total += count
        args = {
            "Total Allocated": total, "Bytes": count, "Addr": address, "Device Type": 0,
            "Device Id": -1,
        }  # fmt: skip
        rows.append(
            {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "ts": at,
             "pid": pid, "tid": 0, "args": args}
        )  # fmt: skip
        rows.append({"ph": "C", "name": "memory", "ts": at, "pid": pid, "args": {"bytes": total}})
    return rows


def write(path: str | Path, content: Any) -> None:
    """Write a trace as JSON; compressed where the name ends with .gz."""
    data = json.dumps(content).encode()
    Path(path).write_bytes(gzip.compress(data) if str(path).endswith(".gz") else data)


def merge_chrome_traces(paths: Iterable[str | Path], path: str | Path) -> None:
    """The traces of several ranks as one: a line of bars for each rank, in order, by the clock of
    the host."""
    files = []
    for given in paths:
        data = Path(given).read_bytes()
        files.append(json.loads(gzip.decompress(data) if str(given).endswith(".gz") else data))
    if not files:
        raise ConfigError("merge_chrome_traces: no trace given")
    begin = min(f.get("baseTimeNanoseconds", 0) for f in files)
    rows = []
    for number, f in enumerate(files):
        rank = f.get("distributedInfo", {}).get("rank", number)
        late = (f.get("baseTimeNanoseconds", begin) - begin) / 1e3
        for row in f["traceEvents"]:
            moved = {"ts": row["ts"] + late} if "ts" in row else {}
            own = {"id": f"{rank}.{row['id']}"} if row.get("cat") == "fwdbwd" else {}
            rows.append({**row, **moved, **own, "pid": rank})
    write(path, {"schemaVersion": 1, "baseTimeNanoseconds": begin, "traceEvents": rows})
