"""What other workers may name here, where that is limited to some modules. Pure decisions.

Whatever is allowed, plain data may be sent: numbers, containers, tensors, dtypes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...core import dtypes
from ...errors import UnknownName

# What a value may be made of whatever else is allowed: it builds plain data, and calls nothing.
PLAIN = {
    "builtins": frozenset(
        "bool bytearray bytes complex dict float frozenset int list object range set slice str "
        "tuple type Ellipsis NotImplemented".split()
    ),
    "collections": frozenset(("OrderedDict", "defaultdict", "deque", "Counter")),
    "datetime": frozenset(("date", "datetime", "time", "timedelta", "timezone")),
    "numpy": frozenset(("dtype", "ndarray")),
    "numpy._core.multiarray": frozenset(("_reconstruct", "scalar")),
    "numpy._core.numeric": frozenset(("_frombuffer",)),
    "decimal": frozenset(("Decimal",)),
    "fractions": frozenset(("Fraction",)),
    "pathlib": frozenset(("PosixPath", "PurePosixPath")),
    "uuid": frozenset(("UUID",)),
    "disttrain.backends.null": frozenset(("NullArray",)),
    "disttrain.core.device": frozenset(("device",)),
    "disttrain.core.dtypes": frozenset(dtypes.BY_NAME),
    "disttrain.core.random": frozenset(("Generator",)),
    "disttrain.core.sharing": frozenset(("_itself",)),
    "disttrain.core.tensor": frozenset(("Size", "Tensor", "rebuild")),
    "disttrain.nn.parameter": frozenset(("Parameter",)),
    "disttrain.ops.functions.sparse": frozenset(("_rebuilt",)),
    "disttrain.distributed.calls.packing": frozenset(("_dress",)),
}


# What parts of this package send to themselves.
_OWN = ("disttrain.distributed.calls.", "disttrain.distributed.rpc.", "disttrain.distributed.nn.")


def check_home(module: str, name: str, found: Any, allowed: Collection[str]) -> None:
    """``UnknownName`` where ``found`` is not of the module that it is named by, nor of another one
    that is allowed: a module that may be named has names for others, such as ``os``."""
    home = getattr(found, "__module__", None)
    if isinstance(home, str) and isinstance(getattr(found, "__qualname__", None), str):
        if home != module:
            check_allowed(home, found.__qualname__, allowed)
        return
    raise UnknownName(
        f"rpc: {module}.{name} is no function and no class; with callable_modules set, others may "
        "name nothing else here"
    )


def check_allowed(module: str, name: str, allowed: Collection[str]) -> None:
    """``UnknownName`` unless ``module``, or a package that it is in, is among ``allowed``, or the
    name is that of plain data."""
    if name in PLAIN.get(module, ()) or module.startswith(_OWN):
        return
    parts = module.split(".")
    if any(".".join(parts[: i + 1]) in allowed for i in range(len(parts))):
        return
    raise UnknownName(
        f"rpc: {module}.{name} may not be used by other workers: callable_modules allows "
        f"{', '.join(sorted(allowed)) or 'nothing'}; add {module!r} to it on this worker"
    )
