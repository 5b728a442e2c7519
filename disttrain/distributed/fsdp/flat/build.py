"""What ``FullyShardedDataParallel`` does to a module before it becomes a unit: which parameters
belong to it, which groups it is spread over, values for parameters on the meta device.

Knows modules and groups; no unit's moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .... import context, nn
from ....comm.group.group import ProcessGroup
from ....core.types import dtypes
from ....core.types.device import usable
from ....errors import ConfigError
from ....nn.parameter import is_lazy, replace_data
from ....trace import warn
from ...collectives.coalesced import broadcast_coalesced
from ...groups.new_group import divide_world, new_group
from ...groups.state import group_or_default
from ...mesh import DeviceMesh
from ...tensor import DTensor
from ..settings import HYBRID, ShardingStrategy
from ..shards.members import Member, Sharding
from .unit import owner_of

_ALONE = "distributed.fsdp.alone"


# -- groups --------------------------------------------------------------------------------------


def resolve_groups(
    process_group: ProcessGroup | None,
    device_mesh: DeviceMesh | None,
    strategy: ShardingStrategy,
    policy: object,
    wrapped: tuple[nn.Module, Any],
) -> Sharding:
    """The groups of shards and replicas that the arguments mean. ``wrapped``: the module and its
    ``device_id``."""
    kind = kind_of(*wrapped)
    if device_mesh is not None:
        if process_group is not None:
            raise ConfigError(
                "FullyShardedDataParallel: Cannot pass both process_group and device_mesh at the "
                "same time. Please just pass only one of them"
            )
        return _of_mesh(device_mesh, strategy)
    if strategy not in HYBRID:
        return _on(group_or_default(process_group), None, kind)
    if process_group is None:
        if policy is None:
            raise ConfigError(
                f"FullyShardedDataParallel: Manual wrapping with {strategy} requires explicit "
                "specification of process group or device_mesh."
            )
        return _of_hosts(kind)
    if not isinstance(process_group, tuple) or len(process_group) != 2:
        raise ConfigError(
            f"FullyShardedDataParallel: Expected process_group to be passed in as a tuple of "
            f"(group of shards, group of replicas) for {strategy}, but got {process_group!r}"
        )
    shards, replicas = process_group
    return _on(shards, replicas, kind)


def _on(group: ProcessGroup, replicas: ProcessGroup | None, kind: str) -> Sharding:
    several = replicas is not None and replicas.size > 1
    return Sharding(group, replicas if several else None, DeviceMesh.from_group(group, kind))


def kind_of(module: nn.Module, device_id: Any) -> str:
    """The kind of device that the wrapped parameters will be on."""
    if device_id is not None:
        return usable(device_id).type
    return next((p.device.type for p in module.parameters() if not p.is_meta), "cpu")


def _of_mesh(mesh: DeviceMesh, strategy: ShardingStrategy) -> Sharding:
    if strategy in HYBRID:
        if mesh.ndim != 2:
            raise ConfigError(
                f"FullyShardedDataParallel: {strategy} needs a mesh of two dimensions, replicas x "
                f"shards, but got {mesh}"
            )
        replicas = mesh.get_group(0)
        return Sharding(mesh.get_group(1), replicas if replicas.size > 1 else None, mesh)
    if mesh.ndim != 1:
        raise ConfigError(
            f"FullyShardedDataParallel: {strategy} needs a mesh of one dimension, but got {mesh}"
        )
    return Sharding(mesh.get_group(0), None, mesh)


def _of_hosts(kind: str) -> Sharding:
    """Shards on the ranks of one host, replicas between the hosts. Every rank calls it."""
    world, me = group_or_default(), context.current()
    size = me.local_world_size
    if size < 1 or world.size % size or size == world.size:
        return _on(world, None, kind)
    shards, replicas = split_by_host(world, size)
    return _on(shards, replicas, kind)


def split_by_host(world: ProcessGroup, size: int) -> tuple[Any, Any]:
    """(Group of the ranks of this host, of which each has ``size``; group of this place on all
    hosts). Every rank calls it."""
    host, place = divmod(int(world.rank), size)
    shards = divide_world(host, place, range(host * size, (host + 1) * size))
    return shards, divide_world(place, host, range(place, int(world.size), size))


def replicated(sharding: Sharding) -> Sharding:
    """Whole parameters on every rank of the group."""
    if sharding.group.size == 1:
        return sharding
    alone = _alone()
    mesh = DeviceMesh.from_group(alone, sharding.mesh.device_type)
    return Sharding(alone, sharding.group, mesh)


def _alone() -> ProcessGroup:
    """A group of this rank only."""
    made: dict[str, ProcessGroup] = context.current().slot(_ALONE, dict)
    world = group_or_default()
    if made.get("world") is not world:
        alone = new_group([world.ranks[world.rank]], use_local_synchronization=True)
        made.update(world=world, alone=alone)
    return made["alone"]


# -- what belongs to it --------------------------------------------------------------------------


def ignored_of(
    root: nn.Module, ignored_modules: list | None, ignored_states: list | set | None, wrapper: type
) -> tuple[set, set]:
    """The modules and parameters to leave alone: those given, what is below them, and those that
    units inside leave alone."""
    if ignored_modules is not None and ignored_states is not None:
        raise ConfigError(
            "FullyShardedDataParallel: Cannot pass both ignored_modules and ignored_states at the "
            "same time. Please just pass ignored_states."
        )
    params: set[Any] = set()
    given: list[Any] = []
    if ignored_modules is not None:
        given = list(ignored_modules)
        _check_kinds("ignored_modules", given, (nn.Module,), "nn.Module list elements")
    elif ignored_states is not None:
        states = list(ignored_states)
        if (states and isinstance(states[0], nn.Module)) or not states:
            kinds: tuple[type, ...] = (nn.Module,)
        else:
            kinds = (nn.Parameter,)
        _check_kinds(
            "ignored_states", states, kinds, "all nn.Parameter or all nn.Module list elements"
        )
        if kinds == (nn.Module,):
            given = states
        else:
            params |= set(states)
    modules = set(_below(given, root, wrapper))
    for m in root.modules():
        if isinstance(m, wrapper):
            modules |= m.__dict__.get("_ignored_modules", set())
            params |= m.__dict__.get("_ignored_params", set())
    for m in modules:
        params |= {p for p in m.parameters(recurse=False) if owner_of(p) is None}
    return modules, params


def _check_kinds(name: str, values: list[Any], kinds: tuple[type, ...], wanted: str) -> None:
    if all(isinstance(v, kinds) for v in values):
        return
    types = sorted({type(v) for v in values}, key=lambda t: f"{t.__module__}.{t.__qualname__}")
    found = [f"<class '{_path(t)}'>" for t in types]
    raise ConfigError(
        f"FullyShardedDataParallel: {name} expects {wanted} but got types [{', '.join(found)}]"
    )


def _path(kind: type) -> str:
    """The name of a class as the program knows it."""
    package, _, rest = kind.__module__.partition(".")
    ours = package == __name__.partition(".")[0]
    return f"{dtypes.dtype.namespace if ours else package}.{rest}.{kind.__qualname__}"


def _below(given: list[Any], root: nn.Module, wrapper: type) -> Iterator[Any]:
    for top in given:
        if isinstance(top, wrapper):
            raise ConfigError(
                "FullyShardedDataParallel: `ignored_modules` should not include FSDP modules; name "
                "the module before it is wrapped"
            )
        if top is root:
            warn(
                "Trying to ignore the top-level module passed into the FSDP constructor itself "
                "will result in all parameters being ignored and is not well-supported",
            )
        for m in top.modules():
            if not isinstance(m, wrapper):
                yield m


def own_modules(root: nn.Module, wrapper: type) -> Iterator[tuple[str, nn.Module]]:
    """``root`` and what is below it, but not units inside and what is below these."""
    seen = {root}
    stack = [("", root)]
    while stack:
        path, module = stack.pop()
        yield path, module
        for name, child in reversed(list(module._modules.items())):
            if child is not None and child not in seen and not isinstance(child, wrapper):
                seen.add(child)
                stack.append((f"{path}.{name}" if path else name, child))


def members_of(root: nn.Module, ignored: Iterable[Any], wrapper: type) -> list[Member]:
    """The parameters that become one unit, each with all its places."""
    left_out = {id(p) for p in ignored}
    known: dict[int, Member] = {}
    for path, module in own_modules(root, wrapper):
        for name, p in module._parameters.items():
            if p is None or id(p) in left_out:
                continue
            full = f"{path}.{name}" if path else name
            owner = owner_of(p)
            if owner is not None:
                raise ConfigError(
                    f"FullyShardedDataParallel: parameter {full!r} is shared with a unit inside, "
                    f"which has it as {_name_in(owner, p)!r}; put both modules into one unit (let "
                    "the policy leave them to their parent), or ignore it"
                )
            if isinstance(p, DTensor) or is_lazy(p):
                raise ConfigError(
                    f"FullyShardedDataParallel: parameter {full!r} is a {type(p).__name__}; needed "
                    "are plain parameters with a shape. Use fully_shard for what lies on a mesh "
                    "already (tensor parallelism), and run one batch through lazy modules first"
                )
            member = known.setdefault(id(p), Member(full, [], p))
            if (module, name) not in member.places:
                member.places.append((module, name))
    return list(known.values())


def _name_in(unit: Any, p: nn.Parameter) -> str:
    for m in unit.members:
        if m.sharded is p:
            return m.name
    return unit.members[0].name


# -- values --------------------------------------------------------------------------------------


def materialize(
    root: nn.Module, ignored: set, init: Callable[[Any], None] | None, wrapper: type,
    device_id: Any = None,
) -> None:  # fmt: skip
    """Bring the module to the device that was named (from the CPU), and give the parameters of this
    unit that are on the meta device memory and values: by ``init(module)``, or else ``to_empty``
    and the module's own ``reset_parameters``."""
    own = [m for _, m in own_modules(root, wrapper) if m not in ignored]
    where = usable("cpu") if device_id is None else usable(device_id)
    if where.type != "cpu":
        _move(own, where)
    if not any(_is_meta(m) for m in own):
        return
    for m in own:
        if init is not None:
            init(m)
        elif _is_meta(m):
            _reset(m, where)


def _move(modules: list[nn.Module], where: object) -> None:
    """Parameters and buffers that are on the CPU go to ``where``; the others must be there."""
    for m in modules:
        tensors = [*m._parameters.values(), *m._buffers.values()]
        for t in tensors:
            if t is None or t.is_meta or t.device == where:
                continue
            if t.device.type != "cpu":
                raise ConfigError(
                    f"FullyShardedDataParallel: Inconsistent compute device and `device_id`: a "
                    f"tensor of {type(m).__name__} is on {t.device}, device_id means {where}"
                )
            replace_data(t, t.detach().to(where))


def _is_meta(m: nn.Module) -> bool:
    tensors = [*m.parameters(recurse=False), *m.buffers(recurse=False)]
    return any(t.is_meta for t in tensors)


def _reset(m: Any, where: object) -> None:
    m.to_empty(device=where, recurse=False)
    reset = getattr(m, "reset_parameters", None) or getattr(m, "_reset_parameters", None)
    if reset is None:
        raise ConfigError(
            f"FullyShardedDataParallel: {type(m).__name__} has parameters on the meta device and "
            "no reset_parameters() to give them values; define it, or pass param_init_fn"
        )
    reset()


def sync_states(root: nn.Module, members: list[Member], ignored: set, group: ProcessGroup) -> None:
    """Give every rank the first rank's parameters and buffers."""
    buffers = [b for m in root.modules() if m not in ignored for b in m.buffers(recurse=False)]
    tensors = [m.sharded for m in members] + list({id(b): b for b in buffers}.values())
    broadcast_coalesced(group, tensors)
