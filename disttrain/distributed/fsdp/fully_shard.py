"""``fully_shard``: parameters become shards, modules become ``FSDPModule``s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import context, nn
from ...comm.group.group import ProcessGroup
from ...core.types.device import usable
from ...errors import ConfigError
from ...nn.module import Module
from ...nn.parameter import replace_data
from ..groups.state import group_or_default
from ..invariant.shards import DEFAULT_COUNT
from ..invariant.strategy import check_mode
from ..mesh import DeviceMesh
from .invariant import ShardedRun
from .module import SLOT, FSDPModule, Place
from .shards.members import Choices, Member, Sharding
from .shards.params import is_sharded
from .shards.places import device_type_of
from .shards.precision import (
    DataParallelMeshDims,
    DiskOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
)
from .unit import TAKEN, Unit

_WORLD = "distributed.fsdp"


def fully_shard(
    module: Module,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Any], Any] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set | None = None,
    dp_mesh_dims: DataParallelMeshDims | None = None,
    deterministic: str | None = None,
    virtual_shards: int = DEFAULT_COUNT,
) -> Any:
    """Shard the parameters of ``module`` (or of a list of modules, which then share one unit) that
    no call below it has taken. Call it bottom-up; make the optimizer afterwards.

    ``mesh``: a device mesh (one dimension: shards; two: replicas x shards), a process group, or
    None for the default group. ``reshard_after_forward``: whether the weights are dropped after
    forward and gathered again in backward (None: yes, except for the root's; a number: keep them
    on groups of so many ranks). ``shard_placement_fn(param)``: ``Shard(dim)`` or None for dim 0.
    ``deterministic="global"`` (for the outermost module): bitwise the same weights on any number of
    ranks that divides ``virtual_shards``; ``module.shards`` says which virtual shards are this
    rank's. Gives back its argument, whose class is now ``FSDP<Class>``.
    """
    invariant = check_mode(deterministic)
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    _check_modules(modules)
    _check_policies(mp_policy, offload_policy)
    chosen = mesh if dp_mesh_dims is None else chosen_axes(mesh, dp_mesh_dims)
    sharding = sharding_of(chosen, modules)
    reshard_after_forward = _after_forward(reshard_after_forward, sharding.world)
    ignored = set() if ignored_params is None else set(ignored_params)
    members = _members(modules, ignored, shard_placement_fn)
    _move_buffers(modules, sharding.mesh.device_type)
    choices = Choices(reshard_after_forward=reshard_after_forward)
    if isinstance(offload_policy, DiskOffloadPolicy):
        choices.folder = offload_policy.folder
    choices.offload = offload_policy
    unit = Unit(modules, members, sharding, mp_policy or MixedPrecisionPolicy(), choices)
    for m in modules:
        m.__dict__[SLOT] = Place(unit, m)
        m.__class__ = _sharded_class(type(m))
        m.register_state_dict_pre_hook(_reshard)
        m._register_load_state_dict_pre_hook(_reshard, with_module=True)
    if invariant:
        below = [s.unit for m in modules[0].modules() if (s := state(m)) is not None]
        modules[0].__dict__["_run"] = ShardedRun(modules[0], below, virtual_shards)
    return module


def _check_policies(
    mp_policy: MixedPrecisionPolicy | None, offload_policy: OffloadPolicy | None
) -> None:
    for name, given, kind, example in (
        ("mp_policy", mp_policy, MixedPrecisionPolicy, "(param_dtype=dt.bfloat16)"),
        ("offload_policy", offload_policy, OffloadPolicy, " or a CPUOffloadPolicy()"),
    ):
        if given is not None and not isinstance(given, kind):
            raise TypeError(
                f"fully_shard: {name}={given!r} of type {type(given).__name__} was given; needed "
                f"is a {kind.__name__}{example}"
            )


def state(module: Module) -> Place | None:
    """What ``fully_shard`` has left on ``module``."""
    return module.__dict__.get(SLOT)


fully_shard.state = state  # type: ignore[attr-defined]


def _reshard(module: Module, *args: object) -> None:
    """State dicts are of the shards."""
    module.reshard()


def sharding_of(mesh: DeviceMesh | None, modules: Sequence[Any] = ()) -> Sharding:
    """The groups that ``mesh`` means, for the parameters of ``modules``."""
    if mesh is None:
        group = group_or_default()
        mesh = _world_mesh(group, device_type_of(modules, group))
    elif isinstance(mesh, ProcessGroup):
        mesh = DeviceMesh.from_group(mesh, device_type_of(modules, mesh))
    if mesh.ndim == 1:
        return Sharding(mesh.get_group(0), None, mesh)
    if mesh.ndim == 2:
        return Sharding(mesh.get_group(1), mesh.get_group(0), mesh)
    raise ValueError(
        f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}: one dimension of shards, or "
        "replicas x shards"
    )


def chosen_axes(mesh: Any, dims: DataParallelMeshDims) -> DeviceMesh:
    """The axes of ``mesh`` that ``dims`` names, several of one kind as one axis."""
    if mesh is None:
        raise ValueError("fully_shard: dp_mesh_dims was given without a mesh; needed is mesh=")
    replicate, shard = dims.names()
    if not shard:
        raise ValueError(
            f"fully_shard: {dims} names no axis to shard over; name one, or use replicate()"
        )
    axes = []
    for names in (replicate, shard):
        if len(names) > 1:
            axes.append("_".join(names))
            mesh[names]._flatten(axes[-1])
        else:
            axes += names
    return mesh[axes[0]] if len(axes) == 1 else mesh[tuple(axes)]


def _world_mesh(group: ProcessGroup, kind: str) -> DeviceMesh:
    """The mesh of the default group, one per rank and kind of device."""
    meshes: dict[str, Any] = context.current().slot(_WORLD, dict)
    if meshes.get("group") is not group:
        meshes.clear()
        meshes["group"] = group
    if kind not in meshes:
        meshes[kind] = DeviceMesh(kind, list(range(group.size)))
    return meshes[kind]


def _check_modules(modules: list[Any]) -> None:
    for m in modules:
        if isinstance(m, (nn.ModuleList, nn.ModuleDict)):
            raise ValueError(
                f"fully_shard does not support containers that do not implement forward: {m}"
            )
        if not isinstance(m, nn.Module):
            raise TypeError(f"fully_shard: {type(m).__name__} was given; needed is a Module")
        if SLOT in m.__dict__:
            raise AssertionError(
                "Each distinct composable distributed API can only be applied to a module once. "
                f"fully_shard was called on this {type(m).__name__} before"
            )


def _after_forward(wanted: bool | int | None, world: int) -> bool | int | None:
    """As given; a group of one rank keeps the weights, one of all ranks drops them."""
    if wanted is None or isinstance(wanted, bool):
        return wanted
    if wanted < 1 or world % wanted:
        raise ValueError(
            f"If passing reshard_after_forward as an int, it should be a factor of {world}, the "
            f"number of ranks that shards are spread over, not {wanted}"
        )
    return wanted != 1 if wanted in (1, world) else wanted


def _members(modules: list[Any], ignored: set, placement: Callable | None) -> list[Member]:
    """The parameters below ``modules`` that are not taken yet, each with all its places."""
    known: dict[int, Member] = {}
    for k, top in enumerate(modules):
        for prefix, m in top.named_modules():
            for name, p in m._parameters.items():
                if p is None or p in ignored:
                    continue
                if is_sharded(p):
                    continue
                path = ".".join(x for x in (str(k) if k else "", prefix, name) if x)
                if TAKEN in p.__dict__:
                    raise ConfigError(_shared(path, p.__dict__[TAKEN]))
                member = known.setdefault(id(p), Member(path, [], p))
                if (m, name) not in member.places:
                    member.places.append((m, name))
    members = list(known.values())
    if placement is not None:
        for member in members:
            member.dim = _dim(member, placement(member.sharded))
    return members


def _move_buffers(modules: list[Any], device_type: str) -> None:
    """The buffers below ``modules`` go to where the parameters are used, as in PyTorch; those
    without memory yet get it there later."""
    if device_type in ("cpu", "meta"):
        return
    where = usable(device_type)
    for m in (m for top in modules for m in top.modules()):
        for b in m._buffers.values():
            if b is not None and not b.is_meta and b.device.type == "cpu":
                replace_data(b, b.detach().to(where))


def _shared(path: str, other: str) -> str:
    return (
        f"fully_shard: parameter {path!r} is the same as parameter {other}, which an earlier call "
        "has sharded; parameters that are shared must be in one unit: give both modules to one "
        "call (a list), or leave both to the call on the module that holds them"
    )


def _dim(member: Member, chosen: object) -> int:
    if chosen is None:
        return 0
    dim = getattr(chosen, "dim", None)
    if not isinstance(dim, int):
        raise ConfigError(
            f"fully_shard: shard_placement_fn gave {chosen!r} for {member.name!r}; needed is "
            "Shard(dim) or None"
        )
    return dim + member.sharded.ndim if dim < 0 else dim


def _sharded_class(kind: type) -> type:
    """``FSDP<Class>``, made once per class."""
    found = kind.__dict__.get("_fsdp_class")
    if found is None:
        found = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {"__module__": kind.__module__})
        kind._fsdp_class = found  # type: ignore[attr-defined]
    return found
