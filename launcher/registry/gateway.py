"""Calls to an etcd of several members, with a deadline for each, over etcd3gw.

etcd3gw speaks to one member by HTTP (etcd's gRPC gateway). A member may be slow, cut off, or gone
without a word; so a call that one does not answer soon is put to the next as well, and the first
answer counts. What is asked may thus happen twice, or later than its caller gave up: callers send
only what may (``registry.etcd`` says how). It knows nothing of leases and membership.
"""

from __future__ import annotations

import importlib
import json
import queue
import socket
import ssl
import threading
import time
from typing import Any

from disttrain.errors import LaunchError

from .access import Access
from .base import RegistryLost

HEDGE = 0.2  # seconds after which the next member is asked as well
PAUSE = 0.1  # ... between rounds in which all have failed at once
CONNECT, ANSWER = 1.0, 6.0  # the longest that one request takes, whoever waits for it
CROWD = 8  # unanswered requests to one member: it is asked no more until one has ended
# gRPC's numbers for answers that another member, or another moment, would not change.
INVALID, NOT_FOUND, DENIED, EXHAUSTED, PRECONDITION, UNKNOWN_CALL, NO_TOKEN = 3, 5, 7, 8, 9, 12, 16
_FINAL = {INVALID, NOT_FOUND, DENIED, PRECONDITION, UNKNOWN_CALL, NO_TOKEN}
_STALE = ("invalid auth token", "revision of auth store is old")


class Unreached(RegistryLost):
    """No member answered in time. ``lasting``: for reasons that waiting does not mend, which is
    known before."""

    def __init__(self, text: str, lasting: bool) -> None:
        super().__init__(text)
        self.lasting = lasting


class Refused(LaunchError):
    """etcd answered, and will not do it. ``code`` is gRPC's number."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class _Failed(Exception):
    """One member gave no answer; another may."""

    def __init__(self, text: str, lasting: bool = False) -> None:
        super().__init__(text)
        self.lasting = lasting


class _Member:
    """One member: its client and how many requests it has not answered."""

    def __init__(self, package: Any, name: str, where: tuple[str, str, int], who: Access) -> None:
        self.name, self.unanswered = name, 0
        protocol, host, port = where
        session = package.requests.Session()
        session.trust_env = False  # no proxy, no .netrc: the address that was given is meant
        session.verify = who.cacert or True
        session.cert = (who.cert, who.key) if who.cert else None
        self.client = package.Etcd3Client(
            host, port, protocol, timeout=(CONNECT, ANSWER), api_path="/v3/", session=session
        )

    def post(self, path: str, body: dict, token: str) -> dict:
        headers = {"Authorization": token} if token else {}
        try:
            answer = self.client.post(self.client.get_url(path), json=body, headers=headers)
        except Exception as error:  # etcd3gw's, requests' and what these let through
            raise _understood(error) from None
        if not isinstance(answer, dict):
            raise _Failed("its answer is no etcd's", lasting=True)
        return answer


class Gateway:
    """``call`` puts requests to whichever member answers. For use by several threads."""

    def __init__(self, access: Access) -> None:
        try:
            package = importlib.import_module("etcd3gw.client")
        except ImportError as error:
            raise LaunchError(
                f"--rdzv-backend etcd: the package etcd3gw is needed ({error}); "
                "pip install 'disttrain[etcd]'"
            ) from None
        self.access = access
        self.members = [
            _Member(package, name, where, access)
            for name, where in zip(access.names, access.endpoints, strict=True)
        ]
        self._preferred = 0
        self._token = ""
        self._lock = threading.Lock()

    @property
    def host(self) -> str:
        """Of the member that has answered last."""
        return self.access.endpoints[self._preferred][1]

    def call(self, path: str, body: dict, within: float) -> dict:
        """The answer to a request. Unreached: nobody gave one in ``within`` seconds; Refused: it
        was no."""
        answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        failures: dict[int, _Failed] = {}
        now = time.monotonic()
        until = due = now
        until += within
        turn = self._preferred
        while now < until:
            if now >= due:
                turn, due = self._ask_next(turn, path, body, answers), now + HEDGE
            try:
                index, answer = answers.get(timeout=max(min(due, until) - now, 0.001))
            except queue.Empty:
                now = time.monotonic()
                continue
            now = time.monotonic()
            if isinstance(answer, Refused):
                raise answer
            if not isinstance(answer, _Failed):
                self._preferred = index
                return answer
            failures[index] = answer
            all_failed = len(failures) == len(self.members)
            if all_failed and all(failure.lasting for failure in failures.values()):
                break
            due = now + PAUSE if all_failed else now
        raise self._unreached(failures, within)

    def _ask_next(self, turn: int, path: str, body: dict, answers: queue.SimpleQueue) -> int:
        """Ask the next member, once more if it is slow: one that waits for a leader to be elected
        looks but once a second whether it is. Whose turn is after it."""
        for _ in self.members:
            index, turn = turn, (turn + 1) % len(self.members)
            member = self.members[index]
            if member.unanswered < CROWD:
                with self._lock:
                    member.unanswered += 1
                threading.Thread(
                    target=self._ask, args=(index, path, body, answers), daemon=True
                ).start()
                break
        return turn

    def _ask(self, index: int, path: str, body: dict, answers: queue.SimpleQueue) -> None:
        member = self.members[index]
        answer: Any
        try:
            answer = self._post(member, path, body)
        except (Refused, _Failed) as error:
            answer = error
        except BaseException as error:
            answer = _Failed(f"{type(error).__name__}: {error}")
        with self._lock:
            member.unanswered -= 1
        answers.put((index, answer))

    def _post(self, member: _Member, path: str, body: dict) -> dict:
        """With the token of our user, which members forget after some minutes."""
        token = self._token
        if not token:
            token = self._authenticate(member)
        try:
            return member.post(path, body, token)
        except Refused as error:
            stale = error.code == NO_TOKEN or any(words in str(error) for words in _STALE)
            if not (stale and self.access.user):
                raise
        return member.post(path, body, self._authenticate(member))

    def _authenticate(self, member: _Member) -> str:
        who = self.access
        if not who.user:
            return ""
        try:
            answer = member.post(
                "/auth/authenticate", {"name": who.user, "password": who.password}, ""
            )
        except Refused as error:
            if error.code == PRECONDITION:  # etcd asks nobody who he is
                return ""
            raise Refused(f"user {who.user}: {error}", error.code) from None
        self._token = str(answer.get("token", ""))
        return self._token

    def _unreached(self, failures: dict[int, _Failed], within: float) -> Unreached:
        told = [
            f"{member.name}: {failures.get(index, 'no answer')}"
            for index, member in enumerate(self.members)
        ]
        lasting = len(failures) == len(self.members) and all(f.lasting for f in failures.values())
        time_given = "" if lasting else f" in {within:.1f} s"
        return Unreached(f"etcd: no member gave an answer{time_given} ({'; '.join(told)})", lasting)

    def close(self) -> None:
        """Let go of the connections."""
        for member in self.members:
            member.client.session.close()


def _understood(error: Exception) -> Refused | _Failed:
    """What etcd3gw's exception means."""
    text = getattr(error, "detail_text", None)
    if isinstance(error, ValueError) or (text and not error.__context__ and text[0] != "{"):
        said = " ".join(str(text or error).split())[:80]
        return _Failed(f"its answer is no etcd's: {said!r}", lasting=True)
    if not text or error.__context__:
        return _connection_failure(error)
    try:
        said = json.loads(text)
    except ValueError:
        return _Failed(f"its answer is no etcd's: {str(text)[:80]!r}", lasting=True)
    words, code = str(said.get("error") or said.get("message")), said.get("code")
    words = words.removeprefix("etcdserver: ")
    if code in _FINAL or (code == EXHAUSTED and "space" in words):
        return Refused(f"etcd says: {words}", int(code))
    return _Failed(words)


def _connection_failure(error: BaseException) -> _Failed:
    """``error``: of the top of some layers, of which the lowest says most."""
    inner = error
    while below := _below(inner):
        inner = below
    if isinstance(inner, socket.gaierror):
        return _Failed("the name does not resolve", lasting=inner.errno != socket.EAI_AGAIN)
    if isinstance(inner, ssl.SSLError):
        ended = isinstance(inner, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
        hint = " (if it has no TLS: --rdzv-conf protocol=http)" if ended else ""
        words = f"TLS: {inner.reason or inner.strerror or inner}{hint}"
        return _Failed(words, lasting=not ended)
    if isinstance(inner, TimeoutError):
        return _Failed("no answer")
    if isinstance(inner, OSError) and inner.strerror:
        return _Failed(inner.strerror.lower())
    if isinstance(inner, ConnectionResetError):  # http.client's has no errno
        return _Failed("it hung up (if it wants TLS: --rdzv-conf protocol=https)")
    return _Failed(str(inner) or type(inner).__name__)


def _below(error: BaseException) -> BaseException | None:
    """What an exception was raised from; urllib3 wraps some only as an argument."""
    argument = error.args[0] if error.args else None
    return (
        error.__cause__
        or error.__context__
        or (argument if isinstance(argument, BaseException) else None)
    )
