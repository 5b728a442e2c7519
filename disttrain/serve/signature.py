"""What a model takes and gives: names, types, shapes, and the dimension that batches lie along.

Pure data, which travels between processes as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ConfigError, ShapeError

# The protocol's names of element types, by numpy's.
DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16",
    "float32": "FP32", "float64": "FP64", "bfloat16": "BF16",
}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """One input or output. ``shape``: numbers, names of sizes, and expressions of names."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def datatype(self) -> str:
        """The protocol's name of its type."""
        return DATATYPES[self.dtype]

    def metadata(self) -> dict[str, Any]:
        """As the protocol tells it: sizes that differ between requests are -1."""
        shape = [size if isinstance(size, int) else -1 for size in self.shape]
        return {"name": self.name, "datatype": self.datatype, "shape": shape}


@dataclass(frozen=True)
class Signature:
    """``dims``: the least and the largest value (None: no limit) of each named size. ``batch``: the
    one along which requests may be joined, or ""."""

    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    dims: Mapping[str, tuple[int, int | None]]
    batch: str = ""

    def check(self, position: int, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
        """See that input number ``position`` may have ``shape``; note in ``sizes`` what its named
        sizes are. Raises ``ShapeError``."""
        spec = self.inputs[position]
        if len(shape) != len(spec.shape):
            raise ShapeError(_unlike(spec, shape, f"{len(spec.shape)} dimensions are needed"))
        for size, wanted in zip(shape, spec.shape):
            if isinstance(wanted, int):
                if size != wanted:
                    raise ShapeError(
                        _unlike(spec, shape, f"[{', '.join(map(str, spec.shape))}] is needed")
                    )
            elif wanted in self.dims and sizes.setdefault(wanted, size) != size:
                raise ShapeError(_unlike(spec, shape, f"{wanted} is {sizes[wanted]} elsewhere"))

    def check_ranges(self, sizes: Mapping[str, int]) -> None:
        """See that named sizes are in their ranges. Raises ``ShapeError``."""
        for name, size in sizes.items():
            least, most = self.dims[name]
            if size < least or (most is not None and size > most):
                upto = "or more" if most is None else f"to {most}"
                raise ShapeError(f"{name}: {size}; {least} {upto} is needed")

    def rows_limit(self, max_batch: int) -> int:
        """How many rows a batch may have."""
        most = self.dims[self.batch][1] if self.batch else None
        return max_batch if most is None else min(most, max_batch)

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @staticmethod
    def read(told: Mapping[str, Any]) -> Signature:
        """What ``told`` has said."""
        inputs, outputs = (
            tuple(Spec(s["name"], s["dtype"], tuple(s["shape"])) for s in told[key])
            for key in ("inputs", "outputs")
        )
        return Signature(
            inputs,
            outputs,
            {name: (least, most) for name, (least, most) in told["dims"].items()},
            told["batch"],
        )


def joined_along(inputs: Iterable[Spec], outputs: Iterable[Spec], names: Iterable[str]) -> str:
    """The named size that is the first one of all inputs and outputs, and stands nowhere else;
    "" where there is none. Whether results of rows depend on other rows, no shape says."""
    specs = [*inputs, *outputs]
    first = {spec.shape[0] if spec.shape else 0 for spec in specs}
    if len(first) != 1 or not (first & set(names)):
        return ""
    (name,) = first
    elsewhere = [size for spec in specs for size in spec.shape[1:] if isinstance(size, str)]
    return "" if any(name in _words(size) for size in elsewhere) else str(name)


def check_servable(name: str, specs: Iterable[Spec]) -> None:
    """Raise ``ConfigError`` where the protocol has no such values."""
    for spec in specs:
        if spec.dtype not in DATATYPES:
            raise ConfigError(
                f"{name}: {spec.name} has elements of type {spec.dtype}, which the "
                f"protocol has not; it has {', '.join(DATATYPES)}"
            )


def _words(expression: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in expression).split())


def _unlike(spec: Spec, shape: tuple[int, ...], needed: str) -> str:
    return f"input {spec.name}: shape {list(shape)[:16]}; {needed}"


__all__ = ["DATATYPES", "Signature", "Spec", "check_servable", "joined_along"]
