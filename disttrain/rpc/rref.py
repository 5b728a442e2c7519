"""RRefs: references to values that stay with the worker that made them, and ``remote``, which has
one made. What keeps the values alive is ``rref_part``'s; methods called through an RRef, those of
``proxies``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..core.tensor import Tensor
from ..errors import RRefError
from ..futures import Future
from .api import rpc_async, rpc_sync
from .autograd import backward as dist_backward
from .calls.current import current_agent
from .calls.workers import WorkerInfo
from .constants import UNSET_RPC_TIMEOUT
from .proxies import RRefProxy
from .rref_handles import Handle, OwnerHandle, UserHandle
from .rref_part import Part, part_of
from .rref_protocol import CONFIRMED

T = TypeVar("T")

_NO_TENSOR = "RRef should contain a tensor for .backward()"
_NOT_HERE = "Can not pickle rref in python pickler, rref can only be pickled when using RPC"


class RRef(Generic[T]):
    """A reference to a value of some worker, its owner. ``RRef(value)`` is one to a value of this
    worker, ``remote`` and calls that are given or return an RRef make those to others'.

    The owner keeps the value while anybody has an RRef to it. An RRef travels with calls (as an
    argument, a result, in containers, and in other RRefs' values), and in no other way.

    ``type_hint`` is only kept: for PyTorch it says as what a script module is to be seen.
    """

    _handle: Handle
    _type: Future | None = None

    def __init__(self, value: T, type_hint: Any = None) -> None:
        self._handle = _part().own(value)
        self.type_hint = type_hint

    @classmethod
    def _of(cls, handle: Handle) -> RRef:
        rref = cls.__new__(cls)
        rref._handle, rref.type_hint = handle, None
        return rref

    def is_owner(self) -> bool:
        """Is the value with this worker?"""
        return isinstance(self._handle, OwnerHandle)

    def confirmed_by_owner(self) -> bool:
        """Does the owner know of this RRef? (It keeps the value in any case.)"""
        handle = self._handle
        if isinstance(handle, OwnerHandle):
            return True
        handle.part.take()
        return handle.user.state == CONFIRMED

    def owner(self) -> WorkerInfo:
        """The worker that the value is with."""
        handle = self._handle
        return handle.part.me if isinstance(handle, OwnerHandle) else handle.owner

    def owner_name(self) -> str:
        """That worker's name."""
        return self.owner().name

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT) -> T:
        """A copy of the value; at the owner, the value. Waits for it to be made, and raises what
        making it has raised. ``timeout`` in seconds, as for ``rpc_sync``."""
        handle = self._handle
        if isinstance(handle, UserHandle):
            copy: T = handle.part.fetch(handle, timeout)
            return copy
        return self.local_value()

    def local_value(self) -> T:
        """The value, at its owner (elsewhere an error); waits for it to be made."""
        handle = self._handle
        if isinstance(handle, OwnerHandle):
            value: T = handle.value.wait()
            return value
        user, me = handle.user, handle.part.me
        raise RRefError(
            f"For UserRRef(rref_id={user.name.rref_id}, fork_id={user.fork}), can't call "
            f"localValue() on user {me}. Call it on owner {handle.owner}"
        )

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT) -> RRefProxy:
        """``rref.rpc_sync().f(*args)`` calls method ``f`` of the value, at its owner, and returns
        what it returns."""
        return RRefProxy(self, rpc_sync, timeout)

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT) -> RRefProxy:
        """As ``rpc_sync``, but ``rref.rpc_async().f(*args)`` is a Future."""
        return RRefProxy(self, rpc_async, timeout)

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT) -> RRefProxy:
        """As ``rpc_sync``, but ``rref.remote().f(*args)`` is an RRef; the result stays there."""
        return RRefProxy(self, remote, timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Run backward from the value, a tensor with one element, at its owner.

        ``dist_autograd_ctx_id``: the context of distributed autograd that gets the gradients. The
        owner may leave it out: the gradients go to ``.grad``, as from ``Tensor.backward``.
        """
        if isinstance(self._handle, OwnerHandle):
            _backward(self, dist_autograd_ctx_id, retain_graph)
            return
        if dist_autograd_ctx_id == -1:
            raise RRefError(
                "User RRefs require 'dist_autograd_ctx_id' to be specified: the gradients go to "
                "that context; give the id that dist_autograd.context() gave"
            )
        rpc_sync(self.owner(), _backward, (self, dist_autograd_ctx_id, retain_graph))

    def _get_type(self, timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True) -> Any:
        """The type of the value, or (not ``blocking``) a Future of it. Asked for once."""
        if self._type is None or (self._type.done() and self._type._error is not None):
            if isinstance(self._handle, OwnerHandle):
                self._type = Future()
                self._type.set_result(type(self.local_value()))
            else:
                self._handle.part.check(self._handle, "Cannot ask for its type.")
                self._type = rpc_async(
                    self.owner(), _rref_typeof_on_owner, (self,), timeout=timeout
                )
        return self._type.wait() if blocking else self._type

    def _get_future(self) -> Future:
        """A Future that is done when the owner has made the value (of an RRef by ``remote``)."""
        creation = self._handle.creation
        if creation is None:
            raise RRefError("RRef._get_future: this RRef was not made by remote() here")
        return creation

    def _get_profiling_future(self) -> Future:
        return self._get_future()

    def __str__(self) -> str:
        handle = self._handle
        if isinstance(handle, OwnerHandle):
            return f"OwnerRRef({handle.name.rref_id})"
        return f"UserRRef(RRefId = {handle.user.name.rref_id}, ForkId = {handle.user.fork})"

    __repr__ = __str__

    def __reduce_ex__(self, protocol: object) -> Any:
        raise RRefError(_NOT_HERE)


def remote(
    to: WorkerInfo | int | str,
    func: Callable[..., Any],
    args: tuple | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> RRef:
    """Call ``func(*args, **kwargs)`` on worker ``to``, which keeps what it returns; at once, an
    RRef to that.

    ``timeout`` in seconds (0: no limit) for the function to have run, after which the RRef cannot
    be used. What the function raises, ``to_here`` raises.
    """
    part = _part()
    if not callable(func):
        raise TypeError(f"function should be callable. {type(func).__name__} was given")
    return RRef._of(part.create(to, func, tuple(args or ()), kwargs or {}, timeout))


def _part() -> Part:
    """The part of this rank's worker, which from now on knows how an RRef travels."""
    agent = current_agent()
    if RRef not in agent.reducers:
        agent.reducers[RRef] = _reduce
    return part_of(agent)


def _reduce(rref: RRef) -> tuple:
    return _arrived, (rref._handle,)


def _arrived(handle: Handle) -> RRef:
    _part()
    return RRef._of(handle)


def _rref_typeof_on_owner(rref: RRef) -> type:
    return type(rref.local_value())


def _backward(rref: RRef, context_id: int, retain_graph: bool) -> None:
    value: Any = rref.local_value()
    is_tensor = isinstance(value, Tensor)
    if not is_tensor:
        raise RRefError(f"{_NO_TENSOR}: its value is {type(value).__name__}")
    if context_id == -1:
        value.backward(retain_graph=retain_graph)
    else:
        dist_backward(context_id, [value], retain_graph)
