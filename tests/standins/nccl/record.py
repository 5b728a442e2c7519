"""What nccl4py says of itself, of the names that ``comm/nccl`` uses: run it where it is installed.

python tests/standins/nccl/record.py > tests/standins/nccl/nccl4py.json
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from importlib import metadata
from typing import Any

CORE = ("get_unique_id", "get_error_string", "group_start", "group_end")
OF_COMMUNICATORS = ("init", "split", "shrink", "finalize", "destroy", "abort", "get_last_error")
RAW = (
    *("all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "send", "recv"),
    *("comm_get_async_error", "comm_register", "comm_deregister"),
    *("red_op_create_pre_mul_sum", "red_op_destroy"),
)


def parameters(function: Callable[..., Any]) -> list[tuple]:
    """(name, kind, the default's text) of each but the receiver."""
    return [
        (p.name, p.kind.name, None if p.default is inspect.Parameter.empty else repr(p.default))
        for p in inspect.signature(function).parameters.values()
        if p.name not in ("self", "cls")
    ]


def recorded() -> dict[str, Any]:
    """The whole record, of plain data."""
    core: Any = importlib.import_module("nccl.core")
    raw: Any = importlib.import_module("nccl.bindings.nccl")
    of = {name: parameters(getattr(core, name)) for name in CORE}
    of |= {f"Communicator.{n}": parameters(getattr(core.Communicator, n)) for n in OF_COMMUNICATORS}
    of["UniqueId.from_bytes"] = parameters(core.UniqueId.from_bytes)
    members = {"NcclDataType": core.NcclDataType, "NcclRedOp": core.NcclRedOp,
               "CommShrinkFlag": core.CommShrinkFlag, "Result": raw.Result,
               "ScalarResidence": raw.ScalarResidence}  # fmt: skip
    found = {
        "version": metadata.version("nccl4py"),
        "core": of,
        "raw": {name: parameters(getattr(raw, name)) for name in RAW},
        "members": {n: {m.name: int(m) for m in kind} for n, kind in members.items()},
    }
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    print(json.dumps(recorded(), indent=1))
