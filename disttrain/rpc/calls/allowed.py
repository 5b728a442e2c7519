"""What other workers may name here, where that is limited to some modules. Pure decisions.

Whatever is allowed, plain data may be sent: numbers, containers, tensors, dtypes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...core.types import dtypes
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
    "disttrain.core.types.device": frozenset(("device",)),
    "disttrain.core.types.dtypes": frozenset(dtypes.BY_NAME),
    "disttrain.core.types.size": frozenset(("Size",)),
    "disttrain.core.random": frozenset(("Generator",)),
    "disttrain.core.sharing": frozenset(("_itself",)),
    "disttrain.core.tensor": frozenset(("Tensor", "rebuild")),
    "disttrain.nn.parameter": frozenset(("Parameter",)),
    "disttrain.ops.functions.creation.sparse_gradients": frozenset(("_rebuilt",)),
    "disttrain.ops.functions.sparse.compressed": frozenset(("_rebuilt",)),
    "disttrain.ops.functions.sparse.coo": frozenset(("_rebuilt",)),
    "disttrain.rpc.calls.packing": frozenset(("_dress",)),
}


# What parts of this package send to each other.
_OWN = {
    "disttrain.rpc.calls.failures": frozenset(("_make",)),
    "disttrain.rpc.calls.workers": frozenset(("WorkerInfo",)),
    "disttrain.rpc.api": frozenset(("get_worker_info",)),
    "disttrain.rpc.proxies": frozenset(("_local_invoke",)),
    "disttrain.rpc.rref": frozenset(("_arrived", "_backward", "_rref_typeof_on_owner")),
    "disttrain.rpc.rref_protocol": frozenset(("Batch", "GloballyUniqueId", "Name")),
    "disttrain.distributed.nn.remote_module": frozenset(
        "_create_module _create_module_with_interface _param_rrefs _remote_forward "
        "_remote_module_receiver _set_mode".split()
    ),
}
# Plain data that can do more than be data.
_ABLE = {("builtins", "object"), ("builtins", "type"), ("numpy", "ndarray"),
         ("pathlib", "PosixPath"), ("pathlib", "PurePosixPath")}  # fmt: skip
# Ways from a value to what it is made of.
_WAYS_OUT = frozenset(
    "__class__ __delattr__ __getattr__ __getattribute__ __init_subclass__ __reduce__ "
    "__reduce_ex__ __setattr__ __setstate__ __subclasses__".split()
)


def check_method(value: Any, name: str, allowed: Collection[str] | None) -> None:
    """``UnknownName`` where method ``name`` of ``value``, a value of this worker, may not be called
    from others: it leads to anything that there is, or the class of ``value`` may not be named."""
    if allowed is None:
        return
    is_class = isinstance(value, type)
    kind = value if is_class else type(value)
    module, qualname = kind.__module__, kind.__qualname__
    home = next((base for base in kind.__mro__ if name in vars(base)), None)
    of_classes = is_class and home is None and name != "__call__"
    if home is object or of_classes or name in _WAYS_OUT:
        raise UnknownName(
            f"rpc: {name!r} of {module}.{qualname} may not be called by other workers: it leads "
            "to what callable_modules does not allow; give the class a method that does what is "
            "needed"
        )
    if (module, qualname) in _ABLE:
        _check_module(module, qualname, allowed)
    else:
        check_allowed(module, qualname, allowed)


def check_home(module: str, name: str, found: Any, allowed: Collection[str]) -> None:
    """``UnknownName`` where ``found`` is not of the module that it is named by, nor of another one
    that is allowed: a module that may be named has names for others, such as ``os``."""
    home = getattr(found, "__module__", None)
    if isinstance(home, str) and isinstance(getattr(found, "__qualname__", None), str):
        if home != module:
            _check_module(home, found.__qualname__, allowed)
        return
    raise UnknownName(
        f"rpc: {module}.{name} is no function and no class; with callable_modules set, others may "
        "name nothing else here"
    )


def check_allowed(module: str, name: str, allowed: Collection[str]) -> None:
    """``UnknownName`` unless ``module``, or a package that it is in, is among ``allowed``, or the
    name is that of plain data."""
    if name in PLAIN.get(module, ()) or name in _OWN.get(module, ()):
        return
    _check_module(module, name, allowed)


def _check_module(module: str, name: str, allowed: Collection[str]) -> None:
    parts = module.split(".")
    if any(".".join(parts[: i + 1]) in allowed for i in range(len(parts))):
        return
    raise UnknownName(
        f"rpc: {module}.{name} may not be used by other workers: callable_modules allows "
        f"{', '.join(sorted(allowed)) or 'nothing'}; add {module!r} to it on this worker"
    )
