"""What functions of shards are told of specs that do not fit their arguments and results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...core.gate import describe
from ...core.tensor import Tensor
from ...errors import PlacementError, ShapeError
from ..mesh import DeviceMesh


class NotReplicated(PlacementError, ValueError):
    """A result differs along axes that its spec does not name."""


def axes_of(spec: Any) -> list:
    """All axes that a spec names."""
    return [name for names in spec or () for name in names_of(names)]


def names_of(names: Any) -> tuple:
    return () if names is None else names if isinstance(names, tuple) else (names,)


class Told:
    """What errors say of a function and its mesh."""

    def __init__(self, name: str, mesh: DeviceMesh | Mapping[str, int]) -> None:
        sizes = mesh.shape if isinstance(mesh, DeviceMesh) else mesh.values()
        names = mesh.axis_names if isinstance(mesh, DeviceMesh) else mesh
        self.sizes: dict = dict(zip(names, sizes, strict=True))
        self.start = f"shard_map applied to the function '{name}' was given"
        self.mesh = (
            f"The mesh given has shape {tuple(sizes)} with corresponding axis names "
            f"{tuple(names)}.\n\n"
        )

    def check_argument(self, i: int, x: Any, spec: Any) -> None:
        """Raise where an argument cannot be cut so."""
        if not isinstance(x, Tensor):
            return
        shape = tuple(x.shape)
        if len(spec or ()) > len(shape):
            raise ShapeError(
                f"{self.start} an in_specs entry which is too long to be compatible with the "
                f"corresponding input value from the function:\n\nin_specs is {spec} which has "
                f"length {len(spec)}, but the passed args[{i}] has shape {describe(x)}, which has "
                f"rank {len(shape)} (and {len(shape)} < {len(spec)})\n\nEntries in in_specs must "
                "be of length no greater than the number of axes in the corresponding input value."
            )
        for dim, names in enumerate(spec or ()):
            count = math.prod(self.sizes[n] for n in names_of(names))
            if shape[dim] % count:
                raise ShapeError(
                    f"{self.start} argument arrays with axis sizes that are not evenly divisible "
                    f"by the corresponding mesh axis sizes:\n\n{self.mesh}the passed args[{i}] of "
                    f"shape {describe(x)} corresponds to in_specs of value {spec}, which maps "
                    f"array axis {dim} (of size {shape[dim]}) to mesh axes {names_of(names)} (of "
                    f"total size {count}), but {count} does not evenly divide {shape[dim]}"
                )

    def check_result(self, out: Any, spec: Any) -> None:
        """Raise where a result has fewer dimensions than its spec."""
        ndim = len(out.shape) if isinstance(out, Tensor) else 0
        if len(spec or ()) > ndim:
            raise ShapeError(
                f"{self.start} an out_specs entry which is too long to be compatible with the "
                f"corresponding output value from the function:\n\nout_specs is {spec} which has "
                f"length {len(spec)}, but a result has shape {describe(out)}, which has rank "
                f"{ndim} (and {ndim} < {len(spec)})\n\nEntries in out_specs must be of length no "
                "greater than the number of axes in the corresponding output value."
            )

    def differs(self, spec: Any, axis: Any) -> Exception:
        """The error for a result that differs along an axis that its spec does not name."""
        return NotReplicated(
            f"{self.start} out_specs which require replication which can't be statically inferred "
            f"given the mesh:\n\n{self.mesh}out_specs is {spec} which implies that the "
            f"corresponding output value is replicated across mesh axis {axis!r}, but could not "
            "infer replication over any axes\n\nCheck if these output values are meant to be "
            "replicated over those mesh axes (psum, pmean, all_gather). If not, consider revising "
            "the corresponding out_specs entries. If so, consider disabling the check."
        )
