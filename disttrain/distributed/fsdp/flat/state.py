"""State dicts of ``FullyShardedDataParallel``: whole, sharded or local, out and in.

Out: while the module below collects its state the values stand in its parameters' places
(``full_params.expose``), so names and order are those of the module. In: each rank takes its part
of every value; what the value was when it was saved (whole, sharded otherwise) does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from ....backends.device.memory import memory_of
from ....core import no_grad, wrap
from ....errors import StateDictError
from ....nn import hooks
from ....nn.module import Module
from ....nn.parameter import Parameter
from ...tensor import DTensor, Replicate, Shard
from ..names import UNIT, clean_tensor_name, replace_prefix
from ..settings import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from ..shards.members import Sharding
from .full_params import as_local, expose, gather_vector
from .layout import views
from .moves import raw_of
from .param import FLAT_PARAM
from .unit import FlatUnit

_CONFIGS: dict[StateDictType, tuple[Any, Any]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


def defaults() -> StateDictSettings:
    """What a wrapper begins with."""
    return StateDictSettings(
        StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig()
    )


# -- which kind ----------------------------------------------------------------------------------


def _wrappers(module: Module) -> list[Any]:
    return [m for m in module.modules() if "_settings" in m.__dict__ and "_fsdp" in m.__dict__]


def set_type(
    module: Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> StateDictSettings:
    """Let ``state_dict`` and ``load_state_dict`` of every wrapper in ``module`` be of a type; gives
    the settings from before."""
    model, optim = _CONFIGS[state_dict_type]
    model_config = model() if state_dict_config is None else state_dict_config
    optim_config = optim() if optim_state_dict_config is None else optim_state_dict_config
    if type(model_config) is not model:
        raise StateDictError(
            f"set_state_dict_type: Expected state_dict_config of type {model} but got "
            f"{type(model_config)}"
        )
    if type(optim_config) is not optim:
        raise StateDictError(
            f"set_state_dict_type: Expected optim_state_dict_config of type {optim} but got "
            f"{type(optim_config)}"
        )
    before = get_type(module)
    for m in _wrappers(module):
        m.__dict__["_settings"] = StateDictSettings(state_dict_type, model_config, optim_config)
    return before


def get_type(module: Module) -> StateDictSettings:
    """The settings of the wrappers in ``module``, which must agree."""
    found: StateDictSettings | None = None
    for m in _wrappers(module):
        own = m.__dict__["_settings"]
        if found is not None and own != found:
            raise AssertionError(
                f"get_state_dict_type: all FSDP modules must have the same settings, but there are "
                f"{found} and {own}; set them on the outermost module"
            )
        found = own
    return defaults() if found is None else found


@contextmanager
def of_type(
    module: Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> Iterator[None]:
    """``set_state_dict_type`` for a block."""
    before = [(m, m.__dict__["_settings"]) for m in _wrappers(module)]
    set_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
    try:
        yield
    finally:
        for m, settings in before:
            m.__dict__["_settings"] = settings


# -- out -----------------------------------------------------------------------------------------


def save(fsdp: Module, collect: Callable, args: tuple, kwargs: dict) -> Any:
    """``collect(*args, **kwargs)``, the module's own ``state_dict``, with the values asked for."""
    settings, unit = fsdp.__dict__["_settings"], fsdp._unit
    kind = settings.state_dict_type
    prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
    values = None
    if unit.weights and unit.exposed is None:
        values = _values(unit, kind)
    with nullcontext() if values is None else expose(unit, values):
        out = collect(*args, **kwargs)
    replace_prefix(out, f"{prefix}{UNIT}.", prefix)
    if kind is not StateDictType.LOCAL_STATE_DICT:
        _widen_buffers(fsdp, out, prefix)
    metadata = getattr(out, "_metadata", None)
    if metadata is not None:
        for key, value in list(metadata.items()):
            metadata.setdefault(clean_tensor_name(key), value)
    only = getattr(settings.state_dict_config, "rank0_only", False)
    if only and unit.sharding.group.rank + _replica(unit.sharding):
        for key in [k for k in out if k.startswith(prefix)]:
            del out[key]
    return out


def _replica(sharding: Sharding) -> int:
    return 0 if sharding.replicas is None else int(sharding.replicas.rank)


def _values(unit: FlatUnit, kind: StateDictType) -> list[Any] | None:
    """What stands for the unit's members in a state dict; None: what the modules hold anyway."""
    if kind is StateDictType.LOCAL_STATE_DICT:
        return None
    w = unit.weights[0]
    vector = gather_vector(unit)
    if vector is w.local:
        vector = vector if kind is StateDictType.FULL_STATE_DICT else vector.copy()
    parts = views(vector, w.layout)
    if kind is StateDictType.FULL_STATE_DICT:
        return [Parameter(wrap(w.held(p)), requires_grad=m.sharded.requires_grad)
                for p, m in zip(parts, unit.members, strict=True)]  # fmt: skip
    return [as_sharded(w.held(part), unit.sharding) for part in parts]


def as_sharded(whole: np.ndarray, sharding: Sharding) -> DTensor:
    """This rank's rows of ``whole``, what a Tensor holds, as a sharded tensor; a scalar is there on
    every rank."""
    mesh, memory = sharding.mesh, memory_of(whole)
    shape, whole = tuple(whole.shape), memory.raw(whole)
    cut = Shard(0) if shape else Replicate()
    if shape:
        n = -(-shape[0] // sharding.group.size)
        rank = sharding.group.rank
        whole = whole[rank * n : (rank + 1) * n].copy()
    placements = [Replicate()] * (mesh.ndim - 1) + [cut]
    stride = tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))
    return DTensor.from_local(
        wrap(memory.held(whole)), mesh, placements, run_check=False, shape=shape, stride=stride
    )


def _widen_buffers(fsdp: Module, out: Any, prefix: str) -> None:
    """Buffers in the types that they had before mixed precision."""
    kinds = fsdp.__dict__["_buffer_types"]
    if not kinds:
        return
    for path, module in fsdp._modules[UNIT].named_modules():
        for name in module._buffers:
            key = prefix + clean_tensor_name(f"{path}.{name}" if path else name)
            if (module, name) in kinds and key in out:
                out[key] = out[key].to(kinds[module, name])


# -- in ------------------------------------------------------------------------------------------


def load(fsdp: Any, state: Any, prefix: str, metadata: dict, strict: bool, *report: Any) -> None:
    """Take this rank's part of the values of the unit's members; the rest is left to the modules
    below, under the names that they go by."""
    missing, unexpected, errors = report
    for hook in hooks.of(fsdp, hooks.LOAD_PRE):
        given = (state, prefix, metadata, strict, missing, unexpected, errors)
        hook.run(*((fsdp,) if hook.with_kwargs else ()), *given)
    inner = f"{prefix}{UNIT}."
    replace_prefix(state, prefix, inner)
    unit = fsdp._unit
    if not unit.weights:
        return
    w = unit.weights[0]
    w.refresh()
    local = f"{inner}{FLAT_PARAM}"
    if local in state:
        _take_local(unit, state[local], local, errors)
    else:
        for i, m in enumerate(unit.members):
            value = _find(unit, m, state, inner, missing)
            if value is not None:
                _take(unit, i, value, clean_tensor_name(inner + m.name), errors)
        w.written()
    if unit.use_orig:
        state.pop(local, None)
        for m in unit.members:
            for path in _paths(fsdp, m):
                state[inner + clean_tensor_name(path)] = m.sharded
    else:
        state[local] = w.param


def _paths(fsdp: Module, member: Any) -> list[str]:
    places = set(member.places)
    return [
        f"{path}.{name}" if path else name
        for path, module in fsdp._modules[UNIT].named_modules(remove_duplicate=False)
        for name in module._parameters
        if (module, name) in places
    ]


def _find(unit: FlatUnit, m: Any, state: Any, inner: str, missing: list) -> Any:
    """The value of a member, taken out of ``state`` under all its names; None where it lacks."""
    value = None
    for name in _names(unit, m):
        for key in dict.fromkeys((inner + name, inner + clean_tensor_name(name))):
            found = state.pop(key, None)
            value = found if value is None else value
    if value is None:
        missing.append(clean_tensor_name(inner + m.name))
    return value


def _take(unit: FlatUnit, i: int, value: hooks.Tensor, key: str, errors: list) -> None:
    """Write this rank's part of member ``i``, of which ``value`` is the whole or the part."""
    w = unit.weights[0]
    piece, rank = w.layout.pieces[i], unit.sharding.rank
    lo, hi = w.layout.part(i, rank)
    a, b = w.layout.local(i, rank)
    array = as_local(value)
    if tuple(array.shape) == piece.shape or array.size == 1 == piece.numel:
        if hi > lo:
            w.write(w.local[a:b], array.reshape(-1)[lo:hi])
    elif tuple(array.shape) == (hi - lo,) and w.pieces is not None:
        w.write(w.local[a:b], array)  # of a local state dict
    else:
        errors.append(
            f"size mismatch for {key}: copying a param with shape {list(array.shape)} from "
            f"checkpoint, the shape in current model is {list(piece.shape)}."
        )


def _names(unit: FlatUnit, m: Any) -> list[str]:
    """The names of a member below the wrapped module, in all its places."""
    top = unit.modules[0]
    places = {(id(mod), name) for mod, name in m.places}
    out = [m.name]
    for path, module in top.named_modules(remove_duplicate=False):
        for name in unit.orders.get(module, ()):
            if (id(module), name) in places:
                out.append(f"{path}.{name}" if path else name)
    return list(dict.fromkeys(out))


def _take_local(unit: FlatUnit, value: hooks.Tensor, key: str, errors: list) -> None:
    w = unit.weights[0]
    array = raw_of(value.detach().array)
    if tuple(array.shape) != w.local.shape:
        errors.append(
            f"size mismatch for {clean_tensor_name(key)}: copying this rank's part with shape "
            f"{list(array.shape)} from a local state dict, it is {list(w.local.shape)} here; local "
            "state dicts fit the same number of ranks and the same wrapping only"
        )
        return
    with no_grad():
        w.write(w.local, array)
        w.written()
