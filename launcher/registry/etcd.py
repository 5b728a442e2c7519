"""The registry on an etcd: leases, revisions and fencing are etcd's.

Every node has one lease, of which all entries that it leases hang. A request may be carried out
late or twice (``registry.gateway``), and its answer may be lost. So every write is a
transaction that compares the revision at which we last saw its key, after which a late one does
nothing; and what is written begins with a number of its own, by which a writer whose answer was
lost knows whether it has won. What is no node's has a long lease, which every node keeps alive: it
stays when a job ends, for those that were away to hear of it, and not for ever.
"""

from __future__ import annotations

import base64
import contextlib
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from disttrain import settings
from disttrain.errors import LaunchError

from .access import access_of
from .base import LeaseEnded, Registry, Snapshot
from .gateway import NOT_FOUND, Gateway, Refused, Unreached

PATIENCE = 1.5  # seconds for one method, all members asked
LINGER = 900.0  # seconds for which the entries of a job stay when no node is left
_KEEP = LINGER / 10  # ... after which their lease is confirmed again
FAREWELL = 0.7  # ... for the last request, which ends our lease
_MARK = 16  # digits of the number that begins every value


@dataclass(frozen=True)
class _Seen:
    """How we last saw a key. ``revision`` 0: not there."""

    revision: int
    value: bytes | None
    mark: bytes = b""
    lease: int = 0


_NOTHING = _Seen(0, None)


class EtcdRegistry(Registry):
    """The entries of one job. For one thread at a time."""

    outlives_jobs = True
    pause = 0.2  # one look costs etcd a round between its members, and a keeper 2 ms

    def __init__(
        self, gateway: Gateway, job: str, ttl: float = 3.0, patience: float = PATIENCE
    ) -> None:
        self.gateway, self.ttl, self.patience = gateway, ttl, patience
        self.root = f"{gateway.access.prefix}/{quote(job, safe='')}/".encode()
        self._shown = f"{gateway.access.prefix}/shown/{quote(job, safe='')}/".encode()
        self._lease = 0
        self._leased: set[str] = set()
        self._seen: dict[str, _Seen] = {}
        self._kept: dict[str, float] = {}  # when their leases were confirmed
        self._until = 0.0  # when the method that runs gives up

    @property
    def where(self) -> str:
        return f"etcd at {', '.join(self.gateway.access.names)}"

    def name(self, key: str) -> str:
        return self.root.decode() + key

    @property
    def host(self) -> str:
        """Where the member is that has answered last."""
        return self.gateway.host

    def put_leased(self, key: str, value: bytes) -> None:
        def put() -> None:
            self._hold()
            self._leased.add(key)
            while not self._write(key, self._known(key).revision, value, self._lease):
                continue  # another revision is known now

        self._begin()
        try:
            put()
        except LeaseEnded:
            put()

    def renew(self) -> None:
        self._begin()
        if self._lease:
            self._hold()

    def keep(self, key: str) -> None:
        self._begin()
        now, lease = time.monotonic(), self._known(key).lease
        if lease and now - self._kept.get(key, -math.inf) > _KEEP:
            self._call("/lease/keepalive", {"ID": str(lease)})
            self._kept[key] = now

    def compare_swap(self, key: str, expected: bytes | None, new: bytes) -> bool:
        self._begin()
        seen = self._known(key)
        if seen.value != expected:
            seen = self._look(key)
        if seen.value != expected:
            return False
        lease = seen.lease or self._grant(LINGER)
        try:
            return self._write(key, seen.revision, new, lease)
        except LeaseEnded:  # with it the entry has gone
            self._seen.pop(key, None)
            return False

    def read(self) -> Snapshot:
        self._begin()
        answer = self._call(
            "/kv/range", {"key": _packed(self.root), "range_end": _packed(_after(self.root))}
        )
        found = dict(self._unpack(pair) for pair in answer.get("kvs", []))
        self._seen = dict.fromkeys(self._seen, _NOTHING) | found
        entries = {key: seen.value or b"" for key, seen in found.items()}
        return Snapshot(int(answer["header"]["revision"]), entries)

    def delete(self, key: str) -> None:
        self._begin()
        self._leased.discard(key)
        change = {"request_delete_range": {"key": self._name(key)}}
        while revision := self._known(key).revision:
            if self._transact(key, revision, change):
                self._seen[key] = _NOTHING

    def publish(self, key: str, value: bytes, seconds: float = 5.0) -> None:
        self._begin()
        if self._lease:  # late or twice is as good: only the last one counts
            put = {"key": _packed(self._shown + key.encode()), "value": _packed(value)}
            with contextlib.suppress(Refused):  # a lease that has ended, or a place not ours
                self._call("/kv/put", put | {"lease": str(self._lease)})

    def published(self, prefix: str) -> dict[str, bytes]:
        self._begin()
        root = self._shown + prefix.encode()
        asked = {"key": _packed(root), "range_end": _packed(_after(root))}
        try:
            pairs = self._call("/kv/range", asked).get("kvs", [])
        except Refused:  # we may not look there
            return {}
        return {
            base64.b64decode(p["key"])[len(root) :].decode(errors="replace"): base64.b64decode(
                p.get("value", "")
            )
            for p in pairs
        }

    def close(self) -> None:
        """End our lease, and with it all that hangs of it, at once if etcd can be asked."""
        if self._lease:
            try:
                self.gateway.call("/lease/revoke", {"ID": str(self._lease)}, FAREWELL)
            except (Unreached, Refused):
                pass  # it ends by itself
        self._lease = 0
        self.gateway.close()

    # --- the lease --------------------------------------------------------------------------------

    def _hold(self) -> None:
        """Let our lease begin anew."""
        if not self._lease:
            self._lease = self._grant(self.ttl)
            return
        answer = self._call("/lease/keepalive", {"ID": str(self._lease)})
        if int(answer.get("result", {}).get("TTL", 0)) <= 0:
            raise self._lease_ended()

    def _grant(self, seconds: float) -> int:
        return int(self._call("/lease/grant", {"TTL": math.ceil(seconds)})["ID"])

    def _lease_ended(self) -> LeaseEnded:
        self._lease = 0
        for key in self._leased:
            self._seen.pop(key, None)
        self._leased.clear()
        return LeaseEnded(f"{self.where} has ended this node's lease of {self.ttl:g} s")

    # --- requests ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._until = time.monotonic() + self.patience

    def _call(self, path: str, body: dict) -> dict:
        return self.gateway.call(path, body, max(self._until - time.monotonic(), 0.0))

    def _name(self, key: str) -> str:
        return _packed(self.root + key.encode())

    def _unpack(self, pair: dict) -> tuple[str, _Seen]:
        key = base64.b64decode(pair["key"])[len(self.root) :].decode(errors="replace")
        value = base64.b64decode(pair.get("value", ""))
        lease = int(pair.get("lease", 0))
        return key, _Seen(int(pair["mod_revision"]), value[_MARK:], value[:_MARK], lease)

    def _known(self, key: str) -> _Seen:
        return self._seen.get(key) or self._look(key)

    def _look(self, key: str) -> _Seen:
        """How the key is now."""
        return self._notice(key, self._call("/kv/range", {"key": self._name(key)}))

    def _notice(self, key: str, answer: dict) -> _Seen:
        """Remember what a range of one key gave."""
        pairs = answer.get("kvs", [])
        self._seen[key] = self._unpack(pairs[0])[1] if pairs else _NOTHING
        return self._seen[key]

    def _write(self, key: str, revision: int, value: bytes, lease: int) -> bool:
        """Write if the key is as it was at ``revision``; whether it was."""
        mark = secrets.token_hex(_MARK // 2).encode()
        put: dict[str, Any] = {"key": self._name(key), "value": _packed(mark + value)}
        put["lease"] = str(lease)
        try:
            done = self._transact(key, revision, {"request_put": put}, mark)
        except Refused as error:
            if error.code == NOT_FOUND and lease == self._lease:
                raise self._lease_ended() from None
            if error.code == NOT_FOUND:
                raise LeaseEnded(f"{self.name(key)} had a lease that has ended") from None
            raise
        if done:
            self._seen[key] = _Seen(done, value, mark, lease)
        return bool(done)

    def _transact(self, key: str, revision: int, change: dict, mark: bytes = b"") -> int:
        """The revision that the change made; 0: the key was not at ``revision`` any more."""
        name = self._name(key)
        body = {
            "compare": [{"key": name, "target": "MOD", "mod_revision": str(revision)}],
            "success": [change],
            "failure": [{"request_range": {"key": name}}],
        }
        try:
            answer = self._call("/kv/txn", body)
        except Unreached:
            self._seen.pop(key, None)  # it may be changed yet
            raise
        if answer.get("succeeded"):
            return int(answer["header"]["revision"])
        seen = self._notice(key, answer["responses"][0]["response_range"])
        return seen.revision if mark and seen.mark == mark else 0


def connect(
    endpoint: str,
    job: str,
    conf: Mapping[str, str],
    ttl: float,
    waiting: Callable[[str], bool],
    patience: float = PATIENCE,
) -> EtcdRegistry | None:
    """The registry of a job, once etcd has answered. While nobody does, ``waiting(why)`` is called
    after each try; None where that returns False. LaunchError where waiting would not help."""
    registry = EtcdRegistry(
        Gateway(access_of(endpoint, conf, settings.environment())), job, ttl, patience
    )
    try:
        while True:
            try:
                registry.read()
                return registry
            except Unreached as error:
                if error.lasting:
                    raise
                if not waiting(str(error)):
                    break
    except LaunchError:
        registry.close()
        raise
    registry.close()
    return None


def _packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _after(prefix: bytes) -> bytes:
    """The first key that does not begin with ``prefix``."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
