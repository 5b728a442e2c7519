"""How workers meet: each tells the store where it is, and hears of all others.

Through one store groups may meet one after the other: who comes as one of the first n belongs to
the first group of n, and so on.
"""

from __future__ import annotations

import json
from typing import Any

from ... import context
from ...comm.messaging.message import shared_token
from ...comm.scheduler import SimWaiter
from ...comm.store import HashStore, PrefixStore, Store
from ...comm.worker_env import WorkerEnv, read_worker_env
from ...errors import StoreError, WaitTimeout
from ..autograd import install as carry_autograd
from ..calls.agent import SLOT, Agent
from ..calls.endpoints import open_endpoint
from ..calls.functions import serve_functions
from ..calls.gathering import gathering
from ..calls.workers import WorkerInfo, check_unique
from ..stores import store_for
from .constants import MEETING_SECONDS
from .options import DeviceMap, RpcBackendOptions, settings_of, ways_of
from .rref_part import part_of

_DEVICE_MAPS = "rpc.device_maps"  # of an agent
_FAREWELL = 5.0  # seconds that the one who hosts the store waits for those who still read


def device_map_of(agent: Agent, worker: WorkerInfo) -> DeviceMap:
    """Which devices of ``worker`` the tensors of this one go to, by device."""
    found: DeviceMap = agent.slots.get(_DEVICE_MAPS, {}).get(worker.name, {})
    return found


def place_of(rank: int, world_size: int | None) -> WorkerEnv:
    """The place of this worker among all: as given, else as the environment or the simulation
    says."""
    me = context.current()
    if isinstance(me.waiter, SimWaiter):
        return WorkerEnv(
            me.rank if rank < 0 else rank, me.world_size if world_size is None else world_size
        )
    place = read_worker_env(None, rank, -1 if world_size is None else world_size)
    me.rank, me.world_size = place.rank, place.world_size
    me.local_rank, me.local_world_size = place.local_rank, place.local_world_size
    return place


def open_store(init_method: str, place: WorkerEnv) -> Store:
    """The store through which the workers meet."""
    waiter = context.current().waiter
    if isinstance(waiter, SimWaiter):
        store: Store = waiter.scheduler.slots.setdefault("rpc.store", HashStore())
        return store
    if place.world_size == 1:
        return HashStore()
    return store_for(init_method, place, MEETING_SECONDS)


def meet(name: str, place: WorkerEnv, options: RpcBackendOptions) -> Agent:
    """Join the other workers; returns when all are there and can be called."""
    deadline = context.now() + MEETING_SECONDS
    while True:
        store = None
        try:
            store = open_store(options.init_method, place)
            return join(store, name, place.rank, place.world_size, options)
        except WaitTimeout:
            raise
        except StoreError:  # perhaps the store of an earlier group, which its host now closes
            is_host = place.rank == 0 or options.init_method.startswith("file:")
            if is_host or context.now() > deadline:
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
    number = store.add(f"rpc/{world_size}", 1) - 1
    group = PrefixStore(f"rpc/{world_size}/{number // world_size}", store)
    token, ways = shared_token(group, "rpc"), ways_of(rpc_backend_options)
    endpoint = open_endpoint(rank, token, ways, group.meeting_host)
    agent = Agent(me, endpoint, settings_of(rpc_backend_options))
    try:
        serve_functions(agent)
        gathering(agent)
        part_of(agent)
        carry_autograd(agent)
        agent.slots[_DEVICE_MAPS] = getattr(rpc_backend_options, "device_maps", {})
        addresses = _exchange(group, me, endpoint.address, world_size)
        for worker, address in addresses.items():
            agent.workers.add(worker)
            endpoint.introduce(worker.id, address)
        context.current().slots[SLOT] = agent
        agent.serve()
        gathering(agent).all_gather(None, None, MEETING_SECONDS)
    except BaseException:
        context.current().slots.pop(SLOT, None)
        agent.close()
        raise
    finally:
        _leave(group, rank, world_size)
    return agent


def _exchange(store: Store, me: WorkerInfo, address: str, world_size: int) -> dict[WorkerInfo, str]:
    """Where all workers are. The same error on all of them where two share a name."""
    store.set(f"worker/{me.id}", json.dumps({"name": me.name, "address": address}))
    keys = [f"worker/{rank}" for rank in range(world_size)]
    told = [json.loads(bytes(value)) for value in store.multi_get(keys, MEETING_SECONDS)]
    workers = [WorkerInfo(of["name"], rank) for rank, of in enumerate(told)]
    check_unique(workers)
    return {worker: of["address"] for worker, of in zip(workers, told, strict=True)}


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
