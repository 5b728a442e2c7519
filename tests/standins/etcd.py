"""What one or more members of an etcd answer, in this process, for tests of who asks them.

    with StandIn(members=3) as etcd:
        etcd.endpoint                          "127.0.0.1:41001,..."
        etcd.manner[1] = "silent"              that member's connections get no answer
        etcd.lose_answers(1)                   the next request is carried out, its answer lost

Keys, leases and transactions are kept as etcd's own documentation of its API describes them, all
members being of one mind. What a real etcd does is tested with support.clusters.etcd.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from disttrain_launcher.registry.etcd import LINGER

MANNERS = ("well", "silent", "hangs up", "garbage", "no leader")
SILENCE = 2.0  # seconds for which a silent member says nothing; then it hangs up


class _No(Exception):
    """An error as etcd words it."""

    def __init__(self, status: int, code: int, words: str) -> None:
        super().__init__(words)
        self.status, self.body = status, {"error": f"etcdserver: {words}", "code": code}


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # the base looks up its own name, which a host may not have
        self.server_name, self.server_port = self.server_address[:2]


class StandIn:
    """The members, at ``host``, and what they keep. ``password``: of the user root, whom it then
    asks for. ``second``: how long a lease's second lasts."""

    def __init__(
        self,
        members: int = 3,
        password: str = "",
        second: float = 1.0,
        host: str = "127.0.0.1",
    ) -> None:
        self.host, self.password = host, password
        self.tokens, self._second = set[str](), second
        self.manner = ["well"] * members
        self.asked: list[tuple[int, str]] = []  # (member, path)
        self._keys: dict[str, dict[str, Any]] = {}
        self._leases: dict[int, tuple[int, float]] = {}  # seconds, and when it ends
        self._revision, self._numbers = 1, itertools.count(1000)
        self._lost, self._lock = 0, threading.Lock()
        self._before: Callable[[], None] | None = None
        self._servers = [_Server((host, 0), _handler(self, i)) for i in range(members)]

    @property
    def endpoint(self) -> str:
        return ",".join(f"{self.host}:{server.server_port}" for server in self._servers)

    def __enter__(self) -> StandIn:
        for server in self._servers:
            server.daemon_threads, server.block_on_close = True, False
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def lose_answers(self, count: int, before: Callable[[], None] | None = None) -> None:
        """Carry out the next writes without an answer; ``before`` the connection ends, do that."""
        self._lost, self._before = count, before

    def end_leases(self) -> None:
        """All leases of nodes end now."""
        with self._lock:
            for number, (seconds, _) in self._leases.items():
                if seconds < LINGER:
                    self._leases[number] = (seconds, 0.0)

    def unleased(self) -> list[str]:
        """The keys that would stay for ever."""
        return [key for key, pair in self._keys.items() if pair["lease"] == "0"]

    def forget_tokens(self) -> None:
        self.tokens.clear()

    def answer(self, member: int, path: str, body: dict, token: str) -> dict | None:
        """None: hang up."""
        self.asked.append((member, path))
        manner = self.manner[member]
        if manner == "silent":
            time.sleep(SILENCE)
        if manner in ("silent", "hangs up"):
            return None
        if manner == "no leader":
            raise _No(503, 14, "no leader")
        if self.password and path != "/auth/authenticate" and token not in self.tokens:
            raise _No(401, 16, "invalid auth token") if token else _No(400, 3, "user name is empty")
        with self._lock:
            self._end_what_is_over()
            result = getattr(self, "_" + path.strip("/").replace("/", "_"))(body)
            result.setdefault("header", {})["revision"] = str(self._revision)
        if self._lost and path in ("/kv/txn", "/lease/grant", "/lease/keepalive"):
            self._lost -= 1
            if self._before is not None:
                self._before()
            return None
        return result

    def _end_what_is_over(self) -> None:
        now = time.monotonic()
        for number in [n for n, (_, end) in self._leases.items() if end <= now]:
            self._lease_revoke({"ID": number})

    def _auth_authenticate(self, body: dict) -> dict:
        if not self.password:
            raise _No(400, 9, "authentication is not enabled")
        if (body["name"], body["password"]) != ("root", self.password):
            raise _No(400, 3, "authentication failed, invalid user ID or password")
        token = f"token.{next(self._numbers)}"
        self.tokens.add(token)
        return {"token": token}

    def _lease_grant(self, body: dict) -> dict:
        number, seconds = next(self._numbers), int(body["TTL"])
        self._leases[number] = (seconds, time.monotonic() + seconds * self._second)
        return {"ID": str(number), "TTL": str(seconds)}

    def _lease_keepalive(self, body: dict) -> dict:
        number = int(body["ID"])
        if number not in self._leases:
            return {"result": {"ID": str(number)}}
        seconds = self._leases[number][0]
        self._leases[number] = (seconds, time.monotonic() + seconds * self._second)
        return {"result": {"ID": str(number), "TTL": str(seconds)}}

    def _lease_revoke(self, body: dict) -> dict:
        number = int(body["ID"])
        if self._leases.pop(number, None) is None:
            raise _No(404, 5, "requested lease not found")
        gone = [key for key, pair in self._keys.items() if pair["lease"] == str(number)]
        for key in gone:
            del self._keys[key]
        self._revision += bool(gone)
        return {}

    def _kv_range(self, body: dict) -> dict:
        low, high = body["key"], body.get("range_end", "")
        first, after = b64decode(low), b64decode(high)  # base64 itself keeps no order
        pairs = [
            pair
            for key, pair in self._keys.items()
            if (first <= b64decode(key) < after if high else key == low)
        ]
        return {"kvs": pairs, "count": str(len(pairs))} if pairs else {}

    def _kv_txn(self, body: dict) -> dict:
        (compare,) = body["compare"]
        at = int(self._keys.get(compare["key"], {}).get("mod_revision", 0))
        succeeded = at == int(compare["mod_revision"])
        (request,) = body["success" if succeeded else "failure"]
        answer: dict = {"succeeded": True} if succeeded else {}
        if "request_range" in request:
            answer["responses"] = [{"response_range": self._kv_range(request["request_range"])}]
        elif "request_put" in request:
            self._put(request["request_put"])
        else:
            self._revision += (
                self._keys.pop(request["request_delete_range"]["key"], None) is not None
            )
        return answer

    def _kv_put(self, body: dict) -> dict:
        self._put(body)
        return {}

    def _put(self, body: dict) -> None:
        lease = str(body.get("lease", 0))
        if lease != "0" and int(lease) not in self._leases:
            raise _No(404, 5, "requested lease not found")
        self._revision += 1
        self._keys[body["key"]] = {
            "key": body["key"],
            "value": body["value"],
            "mod_revision": str(self._revision),
            "lease": lease,
        }


def _handler(etcd: StandIn, member: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # an answer is two small writes: 40 ms each otherwise

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            token = self.headers.get("Authorization", "")
            path, status = self.path.removeprefix("/v3"), 200
            try:
                answer: Any = etcd.answer(member, path, body, token)
            except _No as error:
                status, answer = error.status, error.body
            if answer is None:
                self.close_connection = True
                return
            data = b"<html>" if etcd.manner[member] == "garbage" else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    return Handler
