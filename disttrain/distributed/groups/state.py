"""The process groups of a rank: made, found, and given back. State lives in the rank's context."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from ... import context, settings
from ...comm.group.default_group import SLOT
from ...comm.group.device_setup import bind
from ...comm.job.segment import JOB_SLOT, Segment
from ...comm.job.worker_env import WorkerEnv, read_worker_env
from ...comm.meeting import roll_call
from ...comm.meeting.meeting import Meeting
from ...comm.store import HashStore, PrefixStore, Store
from ...comm.store.rendezvous import place_of, say_alone, store_for, told_by_url
from ...comm.transports import selection
from ...core.effects import lasting
from ...core.types.device import located, usable
from ...errors import CommError, ConfigError, GroupError, StoreLost, WaitTimeout
from .cores import share_cores
from .process_group import ProcessGroup, group_on

_WHERE = ("MASTER_ADDR", "MASTER_PORT", "DISTTRAIN_TOKEN_FILE")  # a store is
_REFUSED_SECONDS = 5.0  # as long a rank that was refused tries to tell the others


@dataclass
class _State:
    """What a rank keeps: its default group and the store that it was made through.

    ``made``: the store, where nobody gave it (of a world of one, what says so); ``pid``: the
    process whose groups these are; ``companions``: groups for work beside a group, with what ends
    that work; ``place``: what the launcher has told of this rank."""

    world: ProcessGroup | None = None
    store: Any = None
    made: Any = None
    pid: int = 0
    groups: list[ProcessGroup] = field(default_factory=list)
    companions: list[tuple[ProcessGroup, ProcessGroup, Callable[[], None]]] = field(
        default_factory=list
    )
    made_groups: int = 0
    numbers: dict[str, int] = field(default_factory=dict)  # of groups beside the default one
    place: WorkerEnv | None = None
    joining: tuple[int, int] | None = None  # the process and the thread in init_process_group


class GroupMember:
    """``GroupMember.WORLD``: the default group. ``NON_GROUP_MEMBER``: what outsiders get."""

    NON_GROUP_MEMBER: Any = -100  # as in PyTorch

    @property
    @lasting
    def WORLD(self) -> ProcessGroup | None:  # noqa: N802
        return _state().world


group = GroupMember()


def _state() -> _State:
    return context.current().slot(SLOT, _State)


@lasting
def is_available() -> bool:
    """Whether process groups can be made here: always."""
    return True


@lasting
def is_initialized() -> bool:
    """Whether this rank has a default group."""
    return _state().world is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: object = None,
    device_id: object = None,
    strict: bool | None = None,
) -> None:
    """Join the default group.

    Under ``dtrun`` (or in a simulation) no argument is needed. Otherwise ranks meet through
    ``init_method`` ("env://", "tcp://host:port", "file:///path") or ``store``. Without any of it a
    single process is a group of one. ``backend``: "gloo" (or None) is the best way between the CPUs
    that there are; others, and one for each device ("cpu:shm,cuda:nccl"), as ``docs/transports.md``
    tells.
    Ranks must make the same calls; a ``strict`` group wants them to come from the same lines and
    with the same shapes, too (None: what ``DISTTRAIN_STRICT`` says, by default not).
    Raises ``ConfigError`` for arguments that contradict each other, ``BackendError`` for a backend
    that cannot be used here, ``WaitTimeout`` when ranks stay away.
    """
    state = _state()
    if state.pid not in (0, os.getpid()):  # what a parent has, a forked child does not
        state = context.current().slots[SLOT] = _State()
    if state.world is not None:
        raise ConfigError(
            "init_process_group: the default group exists already; call destroy_process_group() "
            "first, or use new_group() for another group"
        )
    wanted = selection.parse(backend)
    seconds = seconds_of(timeout)
    me = context.current()
    if init_method is not None and store is None:
        store, rank, world_size = told_by_url(init_method, rank, world_size, seconds)
    numbers = me.numbers
    state.joining = os.getpid(), threading.get_ident()
    try:
        transport = _transport(me, wanted, init_method, store, rank, world_size, seconds)
        if transport.job is not None:  # that of ranks which were there before
            _be_in(transport)
        state.world = group_on(transport, strict=strict, backend=wanted.text)
        state.pid, state.made_groups = os.getpid(), 1
        if device_id is not None:
            _bind(state.world, device_id)
    except BaseException:
        if state.world is None:  # it is none of those ranks then
            me.numbers = numbers
        raise
    finally:
        state.joining = None


def _bind(world: ProcessGroup, device_id: Any) -> None:
    """Connect the ranks' devices now, so that groups of some of them are divided from these."""
    there = located(usable(device_id))
    if there is not None:
        world.bound_device_id = device_id
        bind(world, there.platform, there.index)


def _transport(
    me: context.Rank,
    backend: selection.Backend,
    init_method: str | None,
    store: Any,
    rank: int,
    size: int,
    seconds: float,
) -> Any:
    """The default group's, once all ranks are there."""
    inherits = _inherits(init_method, store, rank, size, me)
    try:
        place = _state().place = _place(me, rank, size, inherits)
    except ConfigError as error:
        _tell_others(init_method, store, rank, size, str(error))
        raise
    meeting = Meeting(place.rank, place.world_size, place, seconds)
    if inherits and _is_on_cluster(me):
        importlib.import_module(f"{__package__}.simulated").watch_steps()
        return selection.connect(backend, meeting)
    if inherits and JOB_SLOT in me.slots:
        meeting.segment = _own(me)
    else:
        me.numbers = place.numbers
        share_cores(place)
        if place.job_fd is not None and store is None and init_method in (None, "env://"):
            meeting.segment = Segment.attach(place.job_fd)
    return _meet(backend, meeting, init_method, store)


def _own(me: context.Rank) -> Segment:
    """The segment of the job that this process was started for."""
    job: Segment = me.slots[JOB_SLOT]
    if job.slot(me.rank).pid not in (0, os.getpid()):
        raise ConfigError(
            f"init_process_group: this process was forked from rank {me.rank}, which is the "
            "member of the job's group; give init_method=, rank= and world_size= to make a "
            "group of its own"
        )
    return job


def _is_on_cluster(me: context.Rank) -> bool:
    """Is it a rank of a simulated cluster, whose package is loaded then?"""
    if not me.waiter.simulated:
        return False
    return importlib.import_module("disttrain.comm.transports.sim").fabric() is not None


def _place(me: context.Rank, rank: int, size: int, inherits: bool) -> WorkerEnv:
    """What the launcher told this process, which may have been started as rank ``me`` of a job.
    Simulated ranks share one, whose environment is not theirs."""
    if inherits and me.waiter.simulated:
        return WorkerEnv.inside(me.rank, me.world_size)
    if inherits and JOB_SLOT in me.slots:
        rank, size = me.rank, me.world_size
    return read_worker_env(None, rank, size)


def place_here() -> WorkerEnv:
    """What the launcher had told this process when it joined the default group."""
    place = _state().place
    assert place is not None
    return place


def _tell_others(init_method: str | None, store: Any, rank: int, size: int, problem: str) -> None:
    """The others wait for a rank that was refused: say so where they meet, if that can be reached
    soon."""
    url, made = init_method or "env://", None
    if store is None and not url.startswith(("tcp:", "file:", "env:")):
        return
    try:
        if store is None:
            told = settings.environment()
            env = {name: told[name] for name in _WHERE if name in told}
            place = read_worker_env(env, 1, 2)  # which rank this is was told wrongly
            if url.startswith("env:"):
                if place.master_port is None:
                    return
                rank, size = _number_of("RANK", rank), _number_of("WORLD_SIZE", size)
            place = replace(place, rank=rank, world_size=size)
            made = store_for(url, place, _REFUSED_SECONDS)
            store = PrefixStore("default", made)
        roll_call.refuse(store, rank, size, problem.removeprefix("init_process_group: "))
    except (CommError, ConfigError):
        return  # nobody is there: nobody waits
    finally:
        if made is not None:
            made.close()


def _number_of(name: str, given: int) -> int:
    """What the environment says where the program gives nothing; -1 for what is no number."""
    said = settings.environment().get(name, "")
    return given if given >= 0 else int(said) if said.removeprefix("-").isdigit() else -1


def _inherits(
    init_method: str | None, store: Any, rank: int, world_size: int, me: context.Rank
) -> bool:
    """Whether the arguments ask for no more than the launcher's own group. Simulated ranks have
    met already, however the program says that they shall."""
    plain = store is None and init_method in (None, "", "env://")
    plain = plain or me.waiter.simulated
    return plain and rank in (-1, me.rank) and world_size in (-1, me.world_size)


def seconds_of(timeout: timedelta | float | None) -> float:
    """A time limit in seconds."""
    if timeout is None:
        return context.DEFAULT_TIMEOUT
    value = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if value <= 0:
        raise ConfigError(f"init_process_group: timeout={timeout}; a positive time is needed")
    return value


def _meet(backend: selection.Backend, meeting: Meeting, init_method: str | None, store: Any) -> Any:
    """The transport of the default group. A store is only opened where ranks need one to meet."""
    state, place = _state(), meeting.place
    if _is_on_cluster(context.current()):
        meeting.at = place_of(init_method, store)
    if store is not None:
        state.store = store
        meeting.open_store = lambda: _called(store, meeting)
        return selection.connect(backend, meeting)
    deadline, lost = context.now() + meeting.timeout, None
    while True:
        made: list[Store] = []

        def open_store(made: list[Store] = made) -> Store:
            # The roll is called: nobody waits for the others before that.
            left = max(0.05, deadline - context.now())
            with meeting.while_they_come():
                made.append(store_for(init_method or "env://", place, left, wait=False))
                made[0].set_timeout(meeting.timeout)
                return _called(PrefixStore("default", made[0]), meeting)

        found = replace(meeting)
        if init_method not in (None, "", "env://") or not place.by_mpi:
            found.open_store = open_store
        try:
            transport = selection.connect(backend, found)
        except BaseException as error:
            if made:
                made[0].close()
            # A store that is lost is that of an earlier group, which its rank 0 closes just now.
            lost = error if isinstance(error, StoreLost) else lost
            if lost is None or not isinstance(error, (StoreLost, WaitTimeout)):
                raise
            if context.now() > deadline or error is not lost:
                raise WaitTimeout(
                    f"init_process_group: rank {place.rank} of {place.world_size} waited "
                    f"{meeting.timeout:g} s for all ranks to come, and then lost the {lost}"
                ) from error
            context.sleep(0.01)
            continue
        if made:
            state.made, state.store = made[0], PrefixStore("default", made[0])
        elif place.world_size == 1 and found.segment is None:
            state.made = say_alone(init_method)
        return transport


def _called(store: Any, meeting: Meeting) -> Store:
    """The part of ``store`` that belongs to this meeting of all ranks, once they have come."""
    key = roll_call.meet(store, meeting.rank, meeting.size, meeting.timeout)
    return PrefixStore(key, store)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave a group (None: the default one and all others). Every member calls it; on others it
    does nothing."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    state = _state()
    if group is not None and group is not state.world:
        state.groups = [g for g in state.groups if g is not group]
        _close_all([*_leave_companions(state, group), group])
        return
    if state.world is None:
        raise GroupError("destroy_process_group: there is no default group to leave")
    groups = [*_leave_companions(state, None), *state.groups, state.world]
    made, state.world, state.groups = state.made, None, []
    state.store = state.made = None
    try:
        _close_all(groups)
    finally:
        if made is not None:
            made.close()


def replace_world(timeout: float | None, exclude: Collection[int] = ()) -> list[int]:
    """Make the default group anew, of the ranks that live and are not in ``exclude``: which rank
    each was before, -1 for a newcomer."""
    state = _state()
    old = group_or_default()
    transport, before = old.transport.shrink(timeout, exclude)
    transport.between = old.transport.between
    _be_in(transport)
    for each in (*state.groups, *(made for _, made, _ in state.companions)):
        each.transport.abandon()
    state.groups, state.companions = [], []
    state.world = group_on(transport, strict=old.strict, backend=old.backend)
    return before


def _be_in(transport: Any) -> None:
    """This rank's numbers, and the job it sees, are those of a default group of some of the job's
    ranks."""
    me = context.current()
    if JOB_SLOT in me.slots and transport.job is not None:
        me.slots[JOB_SLOT] = transport.job
    if me.local_world_size == me.world_size:
        me.local_world_size = transport.size
    me.rank, me.world_size = transport.rank, transport.size


def leave_at_once(group: ProcessGroup) -> None:
    """Leave a group of some ranks without meeting its other members."""
    state = _state()
    state.groups = [g for g in state.groups if g is not group]
    for each in [*_leave_companions(state, group), group]:
        each.close(abort=True)


def beside(group: Any, finish: Callable[[], None]) -> ProcessGroup:
    """A group of the same ranks as ``group``, for work of another thread; made the first time that
    all of them ask. Before either is left, ``finish()`` waits for that work to end."""
    state = _state()
    for of, found, _ in state.companions:
        if of is group:
            return found
    made = group.split(0, group.rank)
    assert made is not None
    state.companions.append((group, made, finish))
    return made


def _leave_companions(state: _State, group: ProcessGroup | None) -> list[ProcessGroup]:
    """The companions of ``group`` (None: of all), now without work."""
    ended = [c for c in state.companions if group is None or c[0] is group]
    state.companions = [c for c in state.companions if c not in ended]
    for _, _, finish in ended:
        finish()
    return [made for _, made, _ in ended]


def _close_all(groups: list[ProcessGroup]) -> None:
    """Leave every group. After the first error, which all ranks get, nobody meets any more."""
    failed: BaseException | None = None
    for each in groups:
        try:
            each.close(abort=None if failed is None else True)
        except BaseException as error:
            failed = failed or error
    if failed is not None:
        raise failed


def group_or_default(given: Any = None) -> ProcessGroup:
    """``given``, or the default group; a clear error when there is none."""
    if given is not None:
        if given is GroupMember.NON_GROUP_MEMBER:
            raise ConfigError(
                "Invalid process group specified: this rank is not a member of the group that it "
                "was called with"
            )
        return given
    state = _state()
    world = _joined(state) if state.world is None else state.world
    if world is None:
        raise CommError(
            "the default process group does not exist; call init_process_group() first (and start "
            "the program with dtrun for more than one rank)"
        )
    return world


def _joined(state: _State) -> ProcessGroup | None:
    """The default group that another thread is making: ranks that have it may call functions here
    before that thread goes on."""
    who = state.joining
    if who is None or who[0] != os.getpid() or who[1] == threading.get_ident():
        return None
    context.wait_until(
        lambda: state.joining is None,
        lambda: "the default process group, which another thread is in init_process_group for",
    )
    return state.world


def existing_groups() -> list[ProcessGroup]:
    """The groups that this rank is in, the default one first."""
    state = _state()
    found = [state.world, *state.groups]
    return [g for g in found if isinstance(g, ProcessGroup)]


def add_group(made: ProcessGroup) -> None:
    """Remember a group of this rank, which is left with the default one at the latest."""
    state = _state()
    state.groups.append(made)
    state.made_groups += 1


def store_beside(ranks: list[int]) -> Store:
    """Where some ranks of the default group meet once more, each time in another part of its
    store. All ranks call it."""
    state, store = _state(), default_store()
    name = "+".join(map(str, ranks))
    number = state.numbers[name] = state.numbers.get(name, 0) + 1
    return PrefixStore(f"beside/{name}/{number}", store)


def default_store() -> Store:
    """The store of the default group. Where its ranks have met without one, they open one when
    they first ask: rank 0 hosts it, and the others wait for that."""
    world, state = group_or_default(), _state()
    if state.store is None:
        made = _open_late(world)
        state.made = state.made or made  # a world of one says there that it is alone
        state.store = PrefixStore("default", made)
    return state.store


def _open_late(world: ProcessGroup) -> Store:
    waiter: Any = context.current().waiter
    if waiter.simulated:
        return waiter.scheduler.slots.setdefault("distributed.store", HashStore())
    if world.size == 1:
        return HashStore()
    place = read_worker_env(None, world.rank, world.size)
    if place.master_port is None:
        raise ConfigError(
            f"group {world.name}: its ranks have met without a store ({world.transport.kind}); "
            "needed is one. Set MASTER_ADDR and MASTER_PORT on every rank, or give "
            "init_process_group() an init_method= (tcp://, file://) or a store="
        )
    return store_for("env://", place, world.timeout, wait=False)


def process_group_store(pg: ProcessGroup) -> Store:
    """The part of the store of ``pg`` where it may keep what its members tell each other. Raises
    ``ConfigError`` where the ranks have met without a store and know of no place for one."""
    return PrefixStore(pg.name, default_store())


def get_pg_count() -> int:
    """How many groups this rank has been in since it has joined the default one."""
    return _state().made_groups
