"""Operations with all that they are given and give, as JSON in PyTorch's form of execution traces
(its schema 1.1.1), from which others simulate or replay a training."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from .. import context
from ..core.observers import OperationObserver
from ..core.tensor import Tensor
from ..errors import ConfigError

_SCHEMA = "1.1.1-chakra.0.0.4"
_NONE = "<None>"
_TYPES = {"float32": "float", "float64": "double", "int64": "long int", "int32": "int",
          "float16": "c10::Half", "bfloat16": "c10::BFloat16", "bool": "bool",
          "uint8": "unsigned char"}  # fmt: skip
_ATTRIBUTES = (
    ("rf_id", "uint64", 0), ("fw_parent", "uint64", 0), ("seq_id", "int64", -1),
    ("scope", "uint64", 0), ("tid", "uint64", 1), ("fw_tid", "uint64", 0),
    ("op_schema", "string", ""), ("kernel_backend", "string", ""), ("kernel_file", "string", ""),
)  # fmt: skip


class ExecutionTraceObserver:
    """Writes what runs between ``start()`` and ``stop()`` on the calling thread to the file that
    ``register_callback`` names, when it is stopped. Also given to ``profile``."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._running: Any = None
        self._nodes: list[dict[str, Any]] = []

    def register_callback(self, output_file_path: str) -> Self:
        """Write to this file."""
        self._path = os.fspath(output_file_path)
        return self

    def unregister_callback(self) -> None:
        """Stop, and write to no file any more."""
        self.stop()
        self._path = None

    @property
    def is_registered(self) -> bool:
        """Whether there is a file to write to."""
        return self._path is not None

    def is_running(self) -> bool:
        """Whether operations are recorded now."""
        return self._running is not None

    def get_output_file_path(self) -> str | None:
        """The file to write to."""
        return self._path

    @staticmethod
    def build_execution_trace_obs_from_env() -> ExecutionTraceObserver:
        """One that writes to a new file in the folder for files that do not stay."""
        handle, path = tempfile.mkstemp(".et.json", "rank0.")
        os.close(handle)
        return ExecutionTraceObserver().register_callback(path)

    def start(self) -> None:
        """Begin to record."""
        if self._path is None or self._running is not None:
            return
        whole = ("process", "thread")
        self._nodes = [
            _node(k, f"[pytorch|profiler|execution_trace|{name}]", 1, (), (), 7)
            for k, name in enumerate(whole, 1)
        ]
        self._since = time.perf_counter_ns()
        self._begun = time.strftime("%Y-%m-%d %H:%M:%S")
        self._running = context.interpreter(_Seen(self._nodes))
        self._running.__enter__()

    def stop(self) -> None:
        """End the record, and write the file."""
        if self._running is None:
            return
        self._running.__exit__(None, None, None)
        self._running = None
        self._write()

    def cleanup(self) -> None:
        """``unregister_callback``."""
        self.unregister_callback()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _write(self) -> None:
        assert self._path is not None
        since = self._since // 1000
        whole = {
            "schema": _SCHEMA, "pid": os.getpid(), "time": self._begun, "start_ts": since,
            "nodes": self._nodes, "finish_ts": time.perf_counter_ns() // 1000,
        }  # fmt: skip
        try:
            with open(self._path, "w", encoding="utf-8") as file:
                json.dump(whole, file)
        except OSError as error:
            raise ConfigError(f"ExecutionTraceObserver: {self._path}: {error}") from None


def _node(
    number: int, name: str, parent: int, given: Sequence, results: Sequence, scope: int = 0,
    sequence: int = -1, schema: str = "",
) -> dict[str, Any]:  # fmt: skip
    told = {"rf_id": max(number - 2, 0), "scope": scope, "seq_id": sequence, "op_schema": schema}
    attributes = [{"name": n, "type": t, "value": told.get(n, v)} for n, t, v in _ATTRIBUTES]
    inputs, outputs = (_listed(values) for values in (given, results))
    return {
        "id": number, "name": name, "ctrl_deps": parent, "inputs": inputs, "outputs": outputs,
        "attrs": attributes,
    }  # fmt: skip


def _listed(values: Sequence) -> dict[str, list]:
    keys = ("values", "shapes", "types", "strides")
    columns = zip(*values, strict=True) if values else ([] for _ in keys)
    return dict(zip(keys, map(list, columns), strict=True))


class _Seen(OperationObserver):
    """The interpreter: a node for each operation. Tensors and memory get numbers as they come."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self.nodes = nodes
        self.count = 2
        self.numbers: dict[Any, int] = {}
        self.kept: list[Any] = []

    def __str__(self) -> str:
        return "execution trace"

    def _next(self) -> int:
        self.count += 1
        return self.count

    def _number(self, key: Any, held: Any) -> int:
        if key not in self.numbers:
            self.numbers[key] = self._next()
            self.kept.append(held)
        return self.numbers[key]

    def process(self, prim: Any, args: tuple, params: dict, forward: Callable) -> Any:
        out = forward(prim, args, params)
        given = [self._value(a) for a in (*args, *params.values())]
        outs = out if isinstance(out, tuple) else (out,)
        results = [self._value(o) for o in outs]
        names = ", ".join((*prim.args, *params))
        self.nodes.append(
            _node(self._next(), f"aten::{prim.name}", 2, given, results,
                  schema=f"aten::{prim.name}({names})")
        )  # fmt: skip
        return out

    def _value(self, x: Any) -> tuple[Any, Any, str, Any]:
        """(value, shape, type, strides) of one argument."""
        if isinstance(x, Tensor):
            return self._tensor(x)
        if isinstance(x, (tuple, list)):
            parts = [self._value(v) for v in x]
            kinds = ",".join(p[2] for p in parts)
            shapes, strides = [p[1] for p in parts], [p[3] for p in parts]
            return [p[0] for p in parts], shapes, f"GenericList[{kinds}]", strides
        if x is None:
            return _NONE, [], "None", []
        if isinstance(x, (bool, np.bool_)):
            return bool(x), [], "Bool", []
        if isinstance(x, (int, np.integer)):
            return int(x), [], "Int", []
        if isinstance(x, (float, np.floating)):
            return float(x) if np.isfinite(x) else str(x), [], "Double", []
        return str(x)[:200], [], "String", []

    def _tensor(self, t: Tensor) -> tuple[Any, Any, str, Any]:
        array, shape = t.__dict__.get("array"), list(t.shape)
        kind = _TYPES.get(t.dtype.name, t.dtype.name)
        memory, start, strides = 0, 0, []
        if isinstance(array, np.ndarray):
            base = array
            while isinstance(base.base, np.ndarray):
                base = base.base
            address = array.__array_interface__["data"][0]
            start = (address - base.__array_interface__["data"][0]) // max(array.itemsize, 1)
            memory = self._number(("memory", id(base)), base)
            strides = [s // max(array.itemsize, 1) for s in array.strides]
        value = [self._number(id(t), t), memory, start, t.shape.numel(), t.itemsize, str(t.device)]
        return value, shape, f"Tensor({kind})", strides
