"""How the workers of a group whose size is known meet: each tells the store where it is, and hears
of all others.

Through one store groups may meet one after the other: who comes as one of the first n belongs to
the first group of n, and so on. What keeps one of them from joining is told to all others, who
raise it, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .. import context
from ..comm.job.worker_env import WorkerEnv, read_worker_env
from ..comm.sockets.proof import shared_token
from ..comm.store import HashStore, PrefixStore, Store
from ..comm.store.rendezvous import store_for
from ..comm.transports import selection
from ..comm.transports.sim.scheduler import SimWaiter
from ..errors import CommError, ConfigError, StoreError, WaitTimeout, WorkerError
from .autograd import install as carry_autograd
from .calls.agent import Agent
from .calls.current import SLOT
from .calls.endpoints import open_endpoint
from .calls.functions import serve_functions
from .calls.gathering import gathering
from .calls.workers import WorkerInfo, check_unique
from .constants import MEETING_SECONDS
from .device_maps import DeviceMap, as_text, check_maps
from .messages import mixed
from .options import RpcBackendOptions, settings_of, ways_of
from .rref_part import part_of

_DEVICE_MAPS = "rpc.device_maps"  # of an agent
_FAREWELL = 5.0  # seconds that the one who hosts the store waits for those who still read
_LOOK_EVERY = 2.0  # seconds between looks at why the others do not come


def device_map_of(agent: Agent, worker: WorkerInfo) -> DeviceMap:
    """Which devices of ``worker`` the tensors of this one go to, by device."""
    found: DeviceMap = agent.slots.get(_DEVICE_MAPS, {}).get(worker.name, {})
    return found


def place_of(rank: int, world_size: int | None) -> WorkerEnv:
    """The place of this worker among all: as given, else as the environment or the simulation
    says."""
    me = context.current()
    if isinstance(me.waiter, SimWaiter):
        size = me.world_size if world_size is None else world_size
        return WorkerEnv.inside(me.rank if rank < 0 else rank, size)
    return read_worker_env(None, rank, -1 if world_size is None else world_size)


def open_store(init_method: str, place: WorkerEnv, seconds: float = MEETING_SECONDS) -> Store:
    """The store through which the workers meet."""
    waiter = context.current().waiter
    if isinstance(waiter, SimWaiter):
        store: Store = waiter.scheduler.slots.setdefault("rpc.store", HashStore())
        return store
    if place.world_size == 1:
        return HashStore()
    if _meet_by_mpi(init_method, place):
        return selection.store_by_mpi("init_rpc", place, seconds)
    return store_for(init_method, place, seconds, wait=False)


def _meet_by_mpi(init_method: str, place: WorkerEnv) -> bool:
    """Has MPI started the workers, all of them, and no other place been named where they meet?"""
    named = place.master_port is not None or init_method not in ("", "env://")
    return place.by_mpi and place.world_size > 0 and not named


def meet(name: str, place: WorkerEnv, options: RpcBackendOptions) -> Agent:
    """Join the other workers; returns when all are there and can be called. This process has the
    place's rank, unless it does not join."""
    try:
        WorkerInfo(name, place.rank)
    except WorkerError as error:
        _tell_others(options.init_method, place, f"worker of rank {place.rank}: {error}")
        raise
    me = context.current()
    if isinstance(me.waiter, SimWaiter):
        return _met(name, place, options)
    before, me.numbers = me.numbers, place.numbers
    try:
        return _met(name, place, options)
    except BaseException:
        me.numbers = before
        raise


def _met(name: str, place: WorkerEnv, options: RpcBackendOptions) -> Agent:
    deadline = context.now() + MEETING_SECONDS
    while True:
        store = None
        try:
            store = open_store(options.init_method, place)
            return join(store, name, place.rank, place.world_size, options)
        except StoreError as error:  # perhaps of an earlier group, which its host now closes
            if isinstance(error, WaitTimeout):
                raise
            is_host = place.rank == 0 or options.init_method.startswith("file:")
            made_now = is_host or _meet_by_mpi(options.init_method, place)
            if made_now or context.now() > deadline:
                raise
            context.sleep(0.01)
        finally:
            if store is not None:
                store.close()


def join(
    store: Store, name: str, rank: int, world_size: int, rpc_backend_options: RpcBackendOptions
) -> Agent:
    """As ``meet``, through a store that is there."""
    me = WorkerInfo(name, rank)
    group = _arrive(store, world_size)
    agent = begin(group, me, rpc_backend_options)
    try:
        told = _told(agent, rpc_backend_options)
        if group.compare_set(f"worker/{rank}", "", told).decode() != told:
            raise WorkerError(
                f"RPC worker id {rank} is not unique: two workers came as rank={rank}, this one is "
                f"{name!r}. Give every worker a rank of its own"
            )
        others = _everybody(store, group, world_size)
        check_unique([WorkerInfo(of["name"], of["id"]) for of in others])
        check_encryption(others)
        check_maps(
            {of["name"]: of["maps"] for of in others}, {of["name"]: of["devices"] for of in others}
        )
        for of in others:
            add_worker(agent, of)
        agent.serve()
        gathering(agent).all_gather(None, None, MEETING_SECONDS)
    except BaseException as error:
        give_up(agent)
        if not isinstance(error, (StoreError, WaitTimeout, _Refused)):
            _refuse(group, f"{name}: {type(error).__name__}: {error}")
        raise
    finally:
        _leave(group, rank, world_size)
    return agent


def _arrive(store: Store, world_size: int) -> Store:
    """Where the group meets that this worker is the next one of."""
    number = store.add(f"rpc/{world_size}", 1) - 1
    store.append("rpc/sizes", f"{world_size} ")
    return PrefixStore(f"rpc/{world_size}/{number // world_size}", store)


def _tell_others(init_method: str, place: WorkerEnv, why: str) -> None:
    """The others wait for a worker that cannot come: say so where they meet, if that can be reached
    soon."""
    store = None
    try:
        store = open_store(init_method, place, _FAREWELL)
        group = _arrive(store, place.world_size)
        _refuse(group, why)
        _leave(group, place.rank, place.world_size)
    except (CommError, ConfigError):
        return  # nobody is there: nobody waits
    finally:
        if store is not None:
            store.close()


def begin(store: Store, me: WorkerInfo, options: RpcBackendOptions) -> Agent:
    """The agent of ``me``, which nobody knows yet. ``store``: where its group meets."""
    token, ways = shared_token(store, "rpc"), ways_of(options)
    endpoint = open_endpoint(me.id, token, ways, store.meeting_host)
    agent = Agent(me, endpoint, settings_of(options))
    serve_functions(agent)
    gathering(agent)
    part_of(agent)
    carry_autograd(agent)
    agent.slots[_DEVICE_MAPS] = getattr(options, "device_maps", {})
    context.current().slots[SLOT] = agent
    return agent


def give_up(agent: Agent) -> None:
    """This worker does not join after all, or is about to leave."""
    context.current().slots.pop(SLOT, None)
    agent.close()


def add_worker(agent: Agent, of: dict[str, Any]) -> WorkerInfo:
    """Let ``agent`` know the worker that the store, or a message, tells of."""
    worker = WorkerInfo(of["name"], of["id"])
    agent.workers.add(worker)
    agent.endpoint.introduce(worker.id, of["address"])
    part_of(agent).met(worker)
    return worker


def described(agent: Agent, options: RpcBackendOptions) -> dict[str, Any]:
    """What others need to know of this worker."""
    return {
        "id": agent.me.id,
        "name": agent.me.name,
        "address": agent.endpoint.address,
        "maps": as_text(getattr(options, "device_maps", {})),
        "devices": [str(d) for d in getattr(options, "devices", [])],
        "encrypts": _encrypts(agent, options),
    }


def _encrypts(agent: Agent, options: RpcBackendOptions) -> list[bool]:
    """(calls, large tensors) of a worker that other hosts reach; empty for others."""
    ways = ways_of(options)
    if not mixed.is_between_hosts(agent.endpoint.address):
        return []
    return [ways.tls, ways.tls if ways.data_tls is None else ways.data_tls]


def check_encryption(workers: Sequence[dict[str, Any]]) -> None:
    """``WorkerError`` where workers of several hosts do not encrypt the same. ``workers``: what
    they say of themselves (``described``), so that all find it, before one has called another."""
    found = [of for of in workers if of["encrypts"]]
    for of in found:
        if of["encrypts"] != found[0]["encrypts"]:
            tls = "; ".join(
                "{name} has TLS {} for calls and {} for large tensors".format(
                    *("on" if on else "off" for on in one["encrypts"]), name=one["name"]
                )
                for one in (found[0], of)
            )
            raise WorkerError(
                f"init_rpc: {tls}. Give all workers the same tls= and data_tls= "
                "(TensorPipeRpcBackendOptions)"
            )


class _Refused(CommError):
    """Another worker could not join."""


def _told(agent: Agent, options: RpcBackendOptions) -> str:
    return json.dumps(described(agent, options))


def _everybody(store: Store, group: Store, world_size: int) -> list[dict[str, Any]]:
    """What all workers say of themselves, by rank."""
    deadline = context.now() + MEETING_SECONDS
    keys = [f"worker/{rank}" for rank in range(world_size)]
    while True:
        try:
            told = group.multi_get(keys, _LOOK_EVERY)
            return [json.loads(bytes(value)) for value in told]
        except WaitTimeout:
            missing = [rank for rank, key in enumerate(keys) if not group.check([key])]
            if group.check(["refused"]):
                raise _Refused(f"init_rpc: {bytes(group.get('refused')).decode()}") from None
            _check_sizes(bytes(store.get("rpc/sizes")).decode(), world_size, missing)
            if context.now() > deadline:
                raise WaitTimeout(
                    f"init_rpc: waited {MEETING_SECONDS:g} s for the workers of rank "
                    f"{', '.join(map(str, missing))} of {world_size}, which have not come. Start "
                    "them, with the same init_method and world_size"
                ) from None


def _check_sizes(sizes: str, mine: int, missing: list[int]) -> None:
    """``sizes``: the world sizes that workers have come with. Is a group of another size waiting
    while this one does?"""
    came = [int(size) for size in sizes.split()]
    waiting = sorted({size for size in came if size != mine and came.count(size) % size})
    if missing and waiting:
        raise WorkerError(
            f"init_rpc: world_size={mine} given here, and world_size={waiting[0]} by others; rank "
            f"{', '.join(map(str, missing))} is missing here. All workers give the same world_size"
        )


def _refuse(group: Store, why: str) -> None:
    """Tell those who still wait."""
    try:
        group.compare_set("refused", "", why)
    except StoreError:
        return


def _leave(store: Any, rank: int, world_size: int) -> None:
    """Nobody needs the store any more; its host closes it when all say so."""
    try:
        left = store.add("left", 1)
        if rank == 0 and left < world_size:
            context.wait_until(
                lambda: store.add("left", 0) >= world_size, lambda: "all to have met", _FAREWELL
            )
    except (StoreError, WaitTimeout):  # whoever is missing now has said why
        return
