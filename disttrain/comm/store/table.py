"""What a store holds, what each request means, and how a request looks as bytes.

A request is (operation, keys, values), an answer a list of bytes. Both are encoded as

    operation or status u8 | number of keys u16 | number of values u16 | each: length u32, bytes

Nothing is ever unpickled. Knows no sockets, files or threads.
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import StoreError

SET, GET, CHECK, ADD, COMPARE_SET, DELETE, COUNT, APPEND = range(1, 9)
# Queues have names of their own beside the keys.
PUSH, POP, LENGTH, FILLED, KEYS, WAIT = range(9, 15)
# Keys that go unless somebody confirms them, and all keys that have changed since.
LEASE, RENEW, SINCE = range(15, 18)
OK, REFUSED = 0, 1
CHANGES = frozenset({SET, ADD, COMPARE_SET, DELETE, APPEND, PUSH, POP, LEASE})
BLOCKING = frozenset({GET, WAIT, FILLED})  # what may have no answer yet
HIDDEN = b"\0"  # keys that begin with this are the store's own and are not counted

_HEAD = struct.Struct("<BHH")
_LENGTH = struct.Struct("<I")
_ENTRY_COST = 128  # bytes that an entry takes beside its key and value
_AWAY = 0.5  # seconds without a call of ``expire`` after which its caller was not there
_LONGEST_MS = 86_400_000  # of a lease

# operation -> (keys, values) it takes; None: any number, -1: as many values as keys
_SHAPE = {
    SET: (None, -1),
    GET: (None, 0),
    CHECK: (None, 0),
    ADD: (1, 1),
    COMPARE_SET: (1, 2),
    DELETE: (1, 0),
    COUNT: (0, 0),
    APPEND: (1, 1),
    PUSH: (1, 1),
    POP: (1, 0),
    LENGTH: (1, 0),
    FILLED: (1, 0),
    KEYS: (1, 0),
    WAIT: (None, 0),
    LEASE: (1, 2),
    RENEW: (1, 1),
    SINCE: (1, 1),
}

Request = tuple[int, Sequence[bytes], Sequence[bytes]]


@dataclass(frozen=True)
class Limits:
    """How much a store holds and how much it hears, in bytes, counts and seconds."""

    key_bytes: int = 1024
    value_bytes: int = 1 << 20
    total_bytes: int = 64 << 20
    keys_per_request: int = 1024
    request_bytes: int = 4 << 20
    clients: int = 4096
    strangers: int = 256  # connections that have not proved themselves
    handshake_seconds: float = 2.0


class Table:
    """The entries of a store."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits() if limits is None else limits
        self.entries: dict[bytes, bytes] = {}
        self.queues: dict[bytes, deque[bytes]] = {}  # none of them empty
        self.nbytes = 0
        self.revision = 1  # grows with every change of an entry
        self._renewed: dict[bytes, float] = {}  # leases just confirmed, and for how many seconds
        self._leases: dict[bytes, float] = {}  # until when others are there
        self._looked: float | None = None

    def apply(self, request: Request) -> list[bytes] | None:
        """The answer; None when a request of ``BLOCKING`` asks for what is not there yet.

        Raises ``StoreError`` for a request without meaning or over a limit, with nothing changed.
        """
        op, keys, values = request
        self._check_shape(op, keys, values)
        if op in CHANGES and not _is_quiet(keys):
            self.revision += 1
        return _ACTIONS[op](self, keys, values)

    def expire(self, now: float) -> float | None:
        """Remove the entries whose leases have ended at ``now``, on a clock of the caller's; when
        to call it again. Time in which nobody called it counts for no lease: whoever should have
        taken what confirms them was not there either."""
        if not self._leases and not self._renewed:
            return None
        away = 0.0 if self._looked is None else max(0.0, now - self._looked - _AWAY)
        self._looked = now
        self._leases = {key: end + away for key, end in self._leases.items()}
        self._leases |= {key: now + ttl for key, ttl in self._renewed.items()}
        self._renewed = {}
        for key in [key for key, end in self._leases.items() if end <= now]:
            self._delete([key], ())
            self.revision += not _is_quiet([key])
        return min(now + _AWAY / 2, *self._leases.values()) if self._leases else None

    def missing(self, request: Request) -> list[bytes]:
        """The keys, or the queues, that a request still waits for."""
        op, keys, _ = request
        entries = () if op == FILLED else self.entries
        queues = () if op == GET else self.queues
        return [key for key in keys if key not in entries and key not in queues]

    def _check_shape(self, op: int, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        if op not in _SHAPE:
            raise StoreError(f"store: request {op} does not exist")
        num_keys, num_values = _SHAPE[op]
        want = len(keys) if num_values == -1 else num_values
        if (num_keys is not None and len(keys) != num_keys) or len(values) != want:
            raise StoreError(f"store: request {op} with {len(keys)} keys, {len(values)} values")
        if len(keys) > self.limits.keys_per_request:
            raise StoreError(
                f"store: {len(keys)} keys in one request; at most "
                f"{self.limits.keys_per_request} (keys_per_request)"
            )
        for key in keys:
            if len(key) > self.limits.key_bytes:
                raise StoreError(
                    f"store: key {_shown(key)} has {len(key)} bytes; at most "
                    f"{self.limits.key_bytes} (key_bytes)"
                )

    def _put(self, key: bytes, value: bytes) -> None:
        self._put_all({key: value})

    def _put_all(self, new: dict[bytes, bytes]) -> None:
        total = self.nbytes
        for key, value in new.items():
            self._check_value(key, value)
            total += _cost(key, value) - self._cost_of(key)
        self._grow_to(total, next(iter(new), b""))
        self.entries.update(new)

    def _check_value(self, key: bytes, value: bytes) -> None:
        if len(value) > self.limits.value_bytes:
            raise StoreError(
                f"store: the value of {_shown(key)} has {len(value)} bytes; at most "
                f"{self.limits.value_bytes} (value_bytes). Send large data through a "
                "process group"
            )

    def _grow_to(self, total: int, key: bytes) -> None:
        if total > self.limits.total_bytes:
            raise StoreError(
                f"store: setting {_shown(key)} would make it hold {total} bytes; at "
                f"most {self.limits.total_bytes} (total_bytes). Delete keys that are not needed"
            )
        self.nbytes = total

    def _cost_of(self, key: bytes) -> int:
        value = self.entries.get(key)
        return 0 if value is None else _cost(key, value)

    def _set(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        self._put_all(dict(zip(keys, values, strict=True)))
        return []

    def _get(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes] | None:
        try:
            return [self.entries[key] for key in keys]
        except KeyError:
            return None

    def _check(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        return [b"0" if self.missing((CHECK, keys, values)) else b"1"]

    def _add(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        total = _number(keys[0], self.entries.get(keys[0], b"0")) + _number(keys[0], values[0])
        self._put(keys[0], b"%d" % total)
        return [b"%d" % total]

    def _compare_set(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        expected, desired = values
        have = self.entries.get(keys[0])
        if have is None and expected:
            return [expected]  # as PyTorch's stores answer
        if have is None or have == expected:
            self._put(keys[0], desired)
            return [desired]
        return [have]

    def _lease(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        ttl = _seconds(keys[0], values[1])
        self._put(keys[0], values[0])
        self._renewed[keys[0]] = ttl
        return []

    def _renew(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        if keys[0] not in self._leases and keys[0] not in self._renewed:
            return [b"0"]
        self._renewed[keys[0]] = _seconds(keys[0], values[0])
        return [b"1"]

    def _since(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        """The revision, and where that is another one than the given: the names and values of all
        keys that begin with the given text."""
        answer = [b"%d" % self.revision]
        if values[0] != answer[0]:
            for key in sorted(k for k in self.entries if k.startswith(keys[0])):
                answer += (key, self.entries[key])
        return answer

    def _delete(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        self._leases.pop(keys[0], None)
        self._renewed.pop(keys[0], None)
        self.nbytes -= self._cost_of(keys[0])
        return [b"0" if self.entries.pop(keys[0], None) is None else b"1"]

    def _count(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        return [b"%d" % sum(not key.startswith(HIDDEN) for key in self.entries)]

    def _append(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        self._put(keys[0], self.entries.get(keys[0], b"") + values[0])
        return []

    def _push(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        (key,), (value,) = keys, values
        self._check_value(key, value)
        self._grow_to(self.nbytes + _cost(key, value), key)
        self.queues.setdefault(key, deque()).append(value)
        return []

    def _pop(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        key = keys[0]
        queue = self.queues.get(key)
        if queue is None:
            return []
        value = queue.popleft()
        if not queue:
            del self.queues[key]
        self.nbytes -= _cost(key, value)
        return [value]

    def _length(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        return [b"%d" % len(self.queues.get(keys[0], ()))]

    def _keys(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        """The next keys in order behind the given one, as many as may be in one request."""
        later = (k for k in self.entries if k > keys[0] and not k.startswith(HIDDEN))
        return heapq.nsmallest(self.limits.keys_per_request, later)

    def _filled(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes] | None:
        return [] if keys[0] in self.queues else None

    def _wait(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes] | None:
        return None if self.missing((WAIT, keys, values)) else []


_ACTIONS = {
    SET: Table._set,
    GET: Table._get,
    CHECK: Table._check,
    ADD: Table._add,
    COMPARE_SET: Table._compare_set,
    DELETE: Table._delete,
    COUNT: Table._count,
    APPEND: Table._append,
    PUSH: Table._push,
    POP: Table._pop,
    LENGTH: Table._length,
    FILLED: Table._filled,
    KEYS: Table._keys,
    WAIT: Table._wait,
    LEASE: Table._lease,
    RENEW: Table._renew,
    SINCE: Table._since,
}


def encode(head: int, keys: Sequence[bytes], values: Sequence[bytes] = ()) -> bytes:
    """A request (or an answer: a status and the values) as bytes."""
    parts = [_HEAD.pack(head, len(keys), len(values))]
    for item in (*keys, *values):
        parts += (_LENGTH.pack(len(item)), item)
    return b"".join(parts)


def decode(body: bytes) -> tuple[int, list[bytes], list[bytes]]:
    """What ``encode`` encoded; ``StoreError`` when ``body`` is anything else."""
    if len(body) < _HEAD.size:
        raise StoreError(f"store: a request of {len(body)} bytes is too short")
    head, num_keys, num_values = _HEAD.unpack_from(body)
    at, items = _HEAD.size, []
    for _ in range(num_keys + num_values):
        end = at + _LENGTH.size
        if end > len(body):
            raise StoreError("store: a request ends too early")
        start, end = end, end + _LENGTH.unpack_from(body, at)[0]
        if end > len(body):
            raise StoreError("store: a request ends too early")
        items.append(bytes(body[start:end]))
        at = end
    if at != len(body):
        raise StoreError(f"store: a request has {len(body) - at} bytes too many")
    return head, items[:num_keys], items[num_keys:]


def too_long(length: int, most: int) -> str:
    """Why a request is refused for its length."""
    return (
        f"store: a request has {length} bytes; at most {most} (request_bytes) may come at once. "
        "Set fewer keys together, and send large data through a process group"
    )


def _is_quiet(keys: Sequence[bytes]) -> bool:
    """Hidden keys change often: who follows the others is not to read all of them again."""
    return all(key.startswith(HIDDEN) for key in keys)


def _cost(key: bytes, value: bytes) -> int:
    return len(key) + len(value) + _ENTRY_COST


def _number(key: bytes, value: bytes) -> int:
    if len(value) > 20 or not value.removeprefix(b"-").isdigit():
        raise StoreError(
            f"store: add to {_shown(key)}, which holds {_shown(value)}; a whole number is needed"
        )
    return int(value)


def _seconds(key: bytes, value: bytes) -> float:
    """For how long a lease holds."""
    if not value.isdigit() or not 0 < int(value) <= _LONGEST_MS:
        raise StoreError(f"store: a lease of {_shown(value)} ms for {_shown(key)}")
    return int(value) / 1000


def _shown(raw: bytes) -> str:
    text = raw[:64].decode("utf-8", "backslashreplace")
    return repr(text) + ("..." if len(raw) > 64 else "")
