"""What every store can do, on top of one method that carries a request. Names as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from ... import context
from ...errors import QueueEmptyError, StoreError, StoreTimeout, WaitTimeout
from .table import (
    ADD,
    APPEND,
    BLOCKING,
    CHECK,
    COMPARE_SET,
    COUNT,
    DELETE,
    FILLED,
    GET,
    KEYS,
    LENGTH,
    POP,
    PUSH,
    SET,
    WAIT,
    Request,
)

DEFAULT_TIMEOUT = 300.0

Timeout = float | timedelta | None


def seconds(timeout: Timeout, default: float = DEFAULT_TIMEOUT) -> float:
    """A timeout in seconds."""
    if timeout is None:
        return default
    value = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if value < 0:
        raise StoreError(f"store: timeout {value:g} s given; a number of seconds is needed")
    return value


def as_bytes(value: str | bytes | bytearray | memoryview) -> bytes:
    """A value as bytes; text is encoded as UTF-8."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise StoreError(
        f"store: a {type(value).__name__} was given; bytes or str are needed. Encode it, for "
        "example with json.dumps"
    )


class Store:
    """A map from keys to bytes that all ranks share, with queues of bytes beside.

    ``get``, ``wait`` and ``queue_pop`` block until there is something, at most ``timeout`` seconds
    (else ``WaitTimeout``), ``barrier`` until all have come. Every other method answers at once.
    ``StoreError``: the store refused, or cannot be reached.
    """

    def __init__(self, timeout: Timeout = None) -> None:
        self._timeout = seconds(timeout)

    def _call(self, request: Request, timeout: float) -> list[bytes]:
        """Carry out one request; one of ``BLOCKING`` waits until its keys are there."""
        raise NotImplementedError(
            f"Not implemented. {type(self).__name__} must define the methods that are used of it"
        )

    def has_extended_api(self) -> bool:
        """Whether ``append``, ``multi_get`` and ``multi_set`` are there."""
        return type(self)._call is not Store._call

    def _ask(self, op: int, keys: Sequence[str | bytes], *values: bytes) -> list[bytes]:
        return self._call((op, [as_bytes(k) for k in keys], values), self._timeout)

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self._timeout)

    def set_timeout(self, timeout: Timeout) -> None:
        """How long ``get`` and ``wait`` block when they are given no timeout."""
        self._timeout = seconds(timeout)

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(SET, [key], as_bytes(value))

    def get(self, key: str, timeout: Timeout = None) -> bytes:
        """The value of ``key``; blocks until it has been set."""
        return self.multi_get([key], timeout)[0]

    def add(self, key: str, amount: int = 1) -> int:
        """Add to a counter (which starts at 0) and return what it is now."""
        return int(self._ask(ADD, [key], b"%d" % amount)[0])

    def check(self, keys: Sequence[str]) -> bool:
        """Are all of ``keys`` there? Does not block."""
        return self._ask(CHECK, keys)[0] == b"1"

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set ``key`` to ``desired`` if it is ``expected`` now; what it is then.

        A missing key counts as empty. Where it is missing and ``expected`` is not empty, nothing
        is set and ``expected`` comes back (PyTorch's stores answer so, too).
        """
        return self._ask(COMPARE_SET, [key], as_bytes(expected), as_bytes(desired))[0]

    def delete_key(self, key: str) -> bool:
        """Remove ``key``; was it there?"""
        return self._ask(DELETE, [key])[0] == b"1"

    def append(self, key: str, value: str | bytes) -> None:
        """Append to the value of ``key`` (empty while it is missing)."""
        self._ask(APPEND, [key], as_bytes(value))

    def num_keys(self) -> int:
        """How many keys there are. Stores that count their users keep one more key for that."""
        return int(self._ask(COUNT, [])[0])

    def multi_get(self, keys: Sequence[str], timeout: Timeout = None) -> list[bytes]:
        """The values of ``keys``; blocks until all of them have been set."""
        limit = seconds(timeout, self._timeout)
        return self._call((GET, [as_bytes(k) for k in keys], ()), limit)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several keys at once."""
        if len(keys) != len(values):
            raise StoreError(
                f"store.multi_set: {len(keys)} keys and {len(values)} values given; as many "
                "values as keys are needed"
            )
        self._ask(SET, keys, *map(as_bytes, values))

    def wait(self, keys: Sequence[str], timeout: Timeout = None) -> None:
        """Block until each of ``keys`` has been set, or is a queue that holds something."""
        limit = seconds(timeout, self._timeout)
        self._call((WAIT, [as_bytes(k) for k in keys], ()), limit)

    def list_keys(self) -> list[str]:
        """All keys, in order; what a store counts its users with is not among them."""
        found: list[bytes] = []
        while more := self._ask(KEYS, [found[-1] if found else b""]):
            found += more
        return [key.decode("utf-8", "backslashreplace") for key in found]

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put ``value`` at the end of a queue. Queues are no keys: only ``check`` and ``wait`` see
        both."""
        self._ask(PUSH, [key], as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of a queue, which goes to one caller only. Where it is empty: wait
        for one, or without ``block`` raise ``QueueEmptyError``."""
        deadline = context.now() + self._timeout
        # It is taken by a request that never waits, so none is lost with a caller who gives up.
        while not (found := self._ask(POP, [key])):
            if not block:
                raise QueueEmptyError(f"store: queue_pop: the queue {key!r} is empty")
            left = max(0.0, deadline - context.now())
            self._call((FILLED, [as_bytes(key)], ()), left)
        return found[0]

    def queue_len(self, key: str) -> int:
        """How many values a queue holds."""
        return int(self._ask(LENGTH, [key])[0])

    def barrier(self, key: str, world_size: int, timeout: Timeout = None) -> None:
        """Block until ``world_size`` callers have come with this ``key``, which is used once."""
        if self.add(f"{key}/num_members", 1) == world_size:
            self.set(f"{key}/last_members", b"1")
        self.wait([f"{key}/last_members"], *(() if timeout is None else (timeout,)))

    def clone(self) -> Store:
        """This store: threads may share it, so it needs no second one."""
        return self

    @property
    def meeting_host(self) -> str | None:
        """The host where processes of other hosts meet through this store; None where only those
        of this host do."""
        return None

    @property
    def only_here(self) -> str:
        """Why nobody of another machine can come, where the store was asked for at an address that
        others know; empty otherwise."""
        return ""

    def secret(self, purpose: str) -> bytes:
        """A key for one purpose, of a token that only the users of the store know; empty where
        there is none. What is in the store may be seen on its way through a network, this not."""
        return b""

    def close(self) -> None:
        """Let go of sockets and threads; nothing to do for most stores."""


class PrefixStore(Store):
    """A part of another store: its keys have ``prefix/`` in front there.

    Uses that store's public methods only, so it may be anybody's.
    """

    def __init__(self, prefix: str, store: Store) -> None:
        self.prefix, self.underlying_store = prefix, store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        found: Store = self
        while isinstance(found, PrefixStore):
            found = found.underlying_store
        return found

    def _key(self, key: str | bytes) -> str:
        text = key.decode() if isinstance(key, bytes) else key
        return f"{self.prefix}/{text}"

    @property
    def timeout(self) -> timedelta:
        return self.underlying_store.timeout

    def set_timeout(self, timeout: Timeout) -> None:
        self.underlying_store.set_timeout(timeout)

    def has_extended_api(self) -> bool:
        return self.underlying_store.has_extended_api()

    def set(self, key: str, value: str | bytes) -> None:
        self.underlying_store.set(self._key(key), as_bytes(value))

    def get(self, key: str, timeout: Timeout = None) -> bytes:
        given = () if timeout is None else (timeout,)
        return self.underlying_store.get(self._key(key), *given)

    def add(self, key: str, amount: int = 1) -> int:
        return self.underlying_store.add(self._key(key), amount)

    def check(self, keys: Sequence[str]) -> bool:
        return self.underlying_store.check([self._key(k) for k in keys])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        store = self.underlying_store
        return store.compare_set(self._key(key), as_bytes(expected), as_bytes(desired))

    def delete_key(self, key: str) -> bool:
        return self.underlying_store.delete_key(self._key(key))

    @property
    def meeting_host(self) -> str | None:
        return getattr(self.underlying_store, "meeting_host", None)

    @property
    def only_here(self) -> str:
        return getattr(self.underlying_store, "only_here", "")

    def secret(self, purpose: str) -> bytes:
        secret = getattr(self.underlying_store, "secret", None)
        return b"" if secret is None else secret(purpose)

    def num_keys(self) -> int:
        return self.underlying_store.num_keys()

    def append(self, key: str, value: str | bytes) -> None:
        if self.has_extended_api():
            self.underlying_store.append(self._key(key), as_bytes(value))
            return
        expected, more = b"", as_bytes(value)
        while (now := self.compare_set(key, expected, expected + more)) != expected + more:
            expected = now

    def multi_get(self, keys: Sequence[str], timeout: Timeout = None) -> list[bytes]:
        if self.has_extended_api():
            given = () if timeout is None else (timeout,)
            return self.underlying_store.multi_get([self._key(k) for k in keys], *given)
        return [self.get(key, timeout) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        if self.has_extended_api():
            told = [as_bytes(value) for value in values]
            self.underlying_store.multi_set([self._key(k) for k in keys], told)
            return
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def wait(self, keys: Sequence[str], timeout: Timeout = None) -> None:
        given = () if timeout is None else (timeout,)
        self.underlying_store.wait([self._key(k) for k in keys], *given)

    def list_keys(self) -> list[str]:
        """The keys of this part, as they are named here."""
        front = f"{self.prefix}/"
        keys = self.underlying_store.list_keys()
        return [key.removeprefix(front) for key in keys if key.startswith(front)]

    def queue_push(self, key: str, value: str | bytes) -> None:
        self.underlying_store.queue_push(self._key(key), as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self.underlying_store.queue_pop(self._key(key), block)

    def queue_len(self, key: str) -> int:
        return self.underlying_store.queue_len(self._key(key))

    def clone(self) -> PrefixStore:
        return PrefixStore(self.prefix, self.underlying_store.clone())


def wait_for(
    request: Request, ready: Callable[[], bool], what: Callable[[], str], timeout: float
) -> None:
    """``context.wait_until`` for the answer to a request. One that blocks until its keys are there
    raises ``StoreTimeout``, in whose text PyTorch's programs find PyTorch's words."""
    try:
        context.wait_until(ready, what, timeout)
    except WaitTimeout as error:
        if request[0] not in BLOCKING:
            raise
        keys = ", ".join("/" + key.decode("utf-8", "replace") for key in request[1][:4])
        text = f"wait timeout after {timeout * 1e3:.0f}ms, keys: {keys}"
        raise StoreTimeout(f"store: {text} ({error})") from None


def keys_text(keys: Sequence[bytes]) -> str:
    """Keys for a message: the first few."""
    shown = ", ".join(repr(k.decode("utf-8", "replace")) for k in keys[:4])
    return f"key{'s' if len(keys) > 1 else ''} {shown}" + (", ..." if len(keys) > 4 else "")
