"""State of a model and its optimizers under one set of names, whatever parallelism is around it.

``get_state_dict`` gives what a plain module and optimizer would have, with parameters by name in
both, whole or as sharded tensors; ``set_state_dict`` takes such dicts, saved under any parallelism
and number of ranks. For plain modules, DDP, FSDP of both kinds and tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from ... import nn
from ...core import Tensor
from ...errors import ConfigError
from ..collectives import objects
from ..fsdp import FullyShardedDataParallel as FSDP
from ..fsdp.settings import FullStateDictConfig, ShardedStateDictConfig, StateDictType
from ..groups.state import group_or_default, is_initialized
from .state import optim as optim_states
from .state.names import Names, prefixes
from .state.optim import begin as _init_optim_state  # noqa: F401  (PyTorch's name for it)
from .state.values import from_rank0, gathered, like


@dataclass
class StateDictOptions:
    """How state is given and taken.

    ``full_state_dict``: values are whole; with ``cpu_offload`` rank 0 alone gets them.
    ``ignore_frozen_params``: leave out parameters that are not trained. ``strict``: names must
    match. ``broadcast_from_rank0``: rank 0 alone has the whole dict that is set.
    ``flatten_optimizer_state_dict``: ``"state.NAME.KEY"`` and ``"param_groups.NAME.KEY"`` instead
    of nested dicts. ``keep_submodule_prefixes``: with ``submodules=``, names begin at the model.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


# -- models --------------------------------------------------------------------------------------


def get_model_state_dict(
    model: nn.Module,
    *,
    submodules: Iterable[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The model's state by the names of the module without wrappers. Every rank calls it."""
    wanted = _checked(options)
    names = Names(model)
    with _type(model, wanted):
        state = {names.clean(k): v for k, v in model.state_dict().items()}
    if wanted.ignore_frozen_params:
        for name in _frozen(model, names):
            state.pop(name, None)
    if wanted.full_state_dict:
        state = gathered(state)
        if wanted.cpu_offload and _rank():
            return {}
    return _only(state, prefixes(model, submodules), wanted)


def set_model_state_dict(
    model: nn.Module, model_state_dict: dict, *, options: StateDictOptions | None = None
) -> Any:
    """Take ``model_state_dict`` (by the names that ``get_model_state_dict`` gives, or
    ``{submodule: its state}``); values may be whole or sharded in any way. Gives the names that
    were missing and unexpected. Every rank calls it."""
    wanted = _checked(options)
    names = Names(model)
    state = _by_name(model, model_state_dict, names)
    if wanted.broadcast_from_rank0:
        state = _spread(model, state, names)
    targets = {names.clean(k): p for k, p in _members(model) if p is not None}
    fitting = {names.raw(k): like(v, targets.get(k)) if isinstance(v, Tensor) and k in targets
               and not _is_flat(model) else v for k, v in state.items()}  # fmt: skip
    with _type(model, wanted):
        return model.load_state_dict(fitting, strict=wanted.strict)


def _checked(options: StateDictOptions | None) -> StateDictOptions:
    wanted = StateDictOptions() if options is None else options
    if wanted.broadcast_from_rank0 and not wanted.full_state_dict:
        raise ConfigError(
            "StateDictOptions: full_state_dict must be True when broadcast_from_rank0 is True: "
            "rank 0 sends whole values"
        )
    return wanted


def _type(model: nn.Module, wanted: StateDictOptions) -> AbstractContextManager:
    """Wrappers of ``FullyShardedDataParallel`` give and take what is wanted."""
    if not _is_flat(model):
        return nullcontext()
    if wanted.full_state_dict:
        config = FullStateDictConfig(offload_to_cpu=wanted.cpu_offload)
        return FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config)
    kind = StateDictType.SHARDED_STATE_DICT
    return FSDP.state_dict_type(model, kind, ShardedStateDictConfig(wanted.cpu_offload))


def _is_flat(model: nn.Module) -> bool:
    return any(isinstance(m, FSDP) for m in model.modules())


def _rank() -> int:
    return int(group_or_default().rank) if is_initialized() else 0


def _members(model: nn.Module) -> list[tuple[str, Any]]:
    """Parameters and buffers under all their names."""
    return [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]


def _frozen(model: nn.Module, names: Names) -> list[str]:
    if not _is_flat(model):
        return [names.clean(n) for n, p in _members(model)
                if isinstance(p, nn.Parameter) and not p.requires_grad]  # fmt: skip
    return [n for s in optim_states.slots(model, names) if not s.param.requires_grad
            for n in s.names]  # fmt: skip


def _only(state: dict[str, Any], begins: tuple[str, ...], wanted: StateDictOptions) -> Any:
    """The entries of submodules, where some were asked for."""
    if not begins:
        return state
    out = {}
    for name, value in state.items():
        begin = next((b for b in begins if name.startswith(b)), None)
        if begin is not None:
            out[name if wanted.keep_submodule_prefixes else name[len(begin) :]] = value
    return out


def _by_name(model: nn.Module, state: dict, names: Names) -> dict[str, Any]:
    if not state or not isinstance(next(iter(state)), nn.Module):
        return {names.clean(k): v for k, v in (state or {}).items()}
    out: dict[str, Any] = {}
    for module, values in state.items():
        (begin,) = prefixes(model, [module]) or ("",)
        out |= {f"{begin}{k}": v for k, v in values.items()}
    return out


def _spread(model: nn.Module, state: dict[str, Any], names: Names) -> dict[str, Any]:
    """Rank 0's whole values, sent one by one; of sharded tensors each rank keeps its part."""
    group = group_or_default()
    metas = {k: (tuple(v.shape), v.dtype.np.str, v.dtype.name) if isinstance(v, Tensor) else v
             for k, v in state.items()}  # fmt: skip
    told = objects.broadcast(group, _plain(metas) if group.rank == 0 else None, 0)
    targets = {} if _is_flat(model) else dict(_members(model))
    out = {}
    for name, meta in told.items():
        if isinstance(meta, tuple) and len(meta) == 3 and isinstance(meta[0], tuple):
            value = from_rank0(state.get(name), (meta[0], optim_states.kind_of(meta[2])), group)
            target = targets.get(names.raw(name))
            out[name] = value if target is None else like(value, target)
        else:
            out[name] = meta
    return out


def _plain(metas: dict[str, Any]) -> dict[str, Any]:
    return dict(metas)


# -- optimizers ----------------------------------------------------------------------------------


def get_optimizer_state_dict(
    model: nn.Module,
    optimizers: object,
    *,
    submodules: Iterable[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """State and groups of one or several optimizers, with parameters by name. Optimizers that have
    not stepped yet get their first state. Every rank calls it."""
    wanted = _checked(options)
    several = _several(optimizers)
    out = optim_states.save(model, several, Names(model), not wanted.full_state_dict)
    if wanted.full_state_dict:
        out = gathered(out)
        if wanted.cpu_offload and _rank():
            return {}
    begins = prefixes(model, submodules)
    if begins:
        out["state"] = _only(out["state"], begins, wanted)
    return optim_states.flattened(out) if wanted.flatten_optimizer_state_dict else out


def set_optimizer_state_dict(
    model: nn.Module,
    optimizers: object,
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load what ``get_optimizer_state_dict`` gave, saved under any parallelism and number of ranks.
    Every rank calls it."""
    wanted = _checked(options)
    several, names = _several(optimizers), Names(model)
    given = optim_state_dict
    if given and "state" not in given and wanted.flatten_optimizer_state_dict:
        given = optim_states.nested(given)
    optim_states.load(model, several, names, given, wanted.broadcast_from_rank0)


def _several(optimizers: object) -> tuple[Any, ...]:
    if isinstance(optimizers, Iterable):
        return tuple(optimizers)
    return (optimizers,)


# -- both ----------------------------------------------------------------------------------------


def get_state_dict(
    model: nn.Module,
    optimizers: object,
    *,
    submodules: Iterable[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``get_model_state_dict`` and ``get_optimizer_state_dict``."""
    several = _several(optimizers)
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, several, submodules=submodules, options=options),
    )


def set_state_dict(
    model: nn.Module,
    optimizers: object,
    *,
    model_state_dict: dict,
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """``set_model_state_dict`` and ``set_optimizer_state_dict``; gives what the first gives."""
    several = _several(optimizers)
    keys = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, several, optim_state_dict, options=options)
    return keys
