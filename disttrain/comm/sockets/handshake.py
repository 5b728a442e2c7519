"""How a link begins: TLS unless told otherwise, the store's hello within it, and who is there.

    TLS 1.3, certificates on both sides (where the link is sealed), and within it
    client: hello                            64 bytes, see ``store.hello``
    server: hello and proof                  64
    client: proof, seal, length u16          32 + 32 + 2
    client: number u16, wanted u16, share 32, and what it says       (``length`` bytes)
    server: seal, length u16, outcome u8, share 32, and what it says

Nothing is parsed before the proof, and nothing is believed that is not sealed with the token. No
side sends more than it is asked for, so nothing that follows is read here. After the last of it TLS
has done its work: its records hold 16 KB at most, which costs three times as much as all the rest.
What follows is encrypted in larger ones (``encryption``), with keys that only both ends know: they
are made of the token and two random shares that were sent within TLS.

Pure: a conversation is a generator. It yields what is to be sent and how many bytes it waits for.
"""

from __future__ import annotations

import hmac
import importlib
import os
import secrets
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from ...errors import CommError
from ..store import hello
from .certificates import Certificates, issue, worker_name

MOST_SAID = 2048
_SEAL, _SHARE = 32, 32
_LENGTH = struct.Struct("<H")
_ENDS = struct.Struct("<HH")
_TLS_HEADER = 5
_TLS_RECORD = (16 << 10) + 256
_WELCOME, _REFUSED = 0, 1


class Refused(CommError):
    """The other side is not who it should be, does not want us, or does not answer."""


@dataclass(frozen=True)
class Keys:
    """What seals a link, one key for each direction."""

    sends: bytes
    receives: bytes


@dataclass(frozen=True)
class Opened:
    """How a conversation has ended. ``last`` is still to be sent; ``number`` is the other end's,
    ``said`` what it says; ``keys`` seal what follows (None: nothing does)."""

    last: bytes
    number: int
    said: bytes
    keys: Keys | None


class Identity:
    """One end of all its links of a kind. ``number``: names it to the others. ``token``: the secret
    that all know. ``purpose``: what the links are for; the same on both ends, as is whether there
    is TLS. ``own``: certificates with ``job`` and ``number`` where they are there already."""

    def __init__(
        self,
        number: int,
        token: bytes,
        purpose: str,
        *,
        tls: bool = True,
        job: bytes | None = None,
        own: Certificates | None = None,
    ) -> None:
        self.number = number
        self.key = hello.derive_key(token, f"links for {purpose}")
        self.job = hello.job_hash(f"disttrain.{purpose}") if job is None else job
        self.own = (own or issue(token, self.job, number)) if tls else None
        self._contexts: dict[bool, Any] = {}

    @property
    def sealed(self) -> bool:
        return self.own is not None

    def name_of(self, number: int) -> str:
        """The name that the certificate of ``number`` bears."""
        return worker_name(self.job, number)

    def tls(self, server: bool) -> Any:
        if server not in self._contexts:
            assert self.own is not None
            self._contexts[server] = context_of(self.own, server)
        return self._contexts[server]


def _ssl() -> Any:
    """The module, loaded with the first link that needs it."""
    return importlib.import_module("ssl")


Steps = Generator[tuple[bytes, int], bytes, Opened]
Admit = Callable[[int, bytes], bytes]  # (number, what it said): what we say; raises ``Refused``


def ask(me: Identity, peer: int, said: bytes) -> Steps:
    """The side that connects to ``peer``."""
    if not me.sealed:
        return (yield from _ask(me, peer, said))
    incoming, outgoing = _ssl().MemoryBIO(), _ssl().MemoryBIO()
    tls = me.tls(False).wrap_bio(incoming, outgoing, server_hostname=me.name_of(peer))
    return (yield from _within(tls, incoming, outgoing, _ask(me, peer, said)))


def answer(me: Identity, admit: Admit) -> Steps:
    """The side that was connected to."""
    if not me.sealed:
        return (yield from _answer(me, lambda number: True, admit))
    incoming, outgoing = _ssl().MemoryBIO(), _ssl().MemoryBIO()
    tls = me.tls(True).wrap_bio(incoming, outgoing, server_side=True)

    def certified(number: int) -> bool:
        shown = tls.getpeercert() or {}
        return ("DNS", me.name_of(number)) in shown.get("subjectAltName", ())

    return (yield from _within(tls, incoming, outgoing, _answer(me, certified, admit)))


def _ask(me: Identity, peer: int, said: bytes) -> Steps:
    share = secrets.token_bytes(_SHARE)
    first = hello.client_hello(me.job, 0, hello.ROLE_DATA)
    second = yield first, hello.SIZE
    proof = hello.client_proof(me.key, first, second)
    if proof is None:
        raise Refused("who listens at its address does not know the token")
    mine = _ENDS.pack(me.number, peer) + share + said
    begun = first + second
    sealed = _seal(me, b"client", begun, mine) + _LENGTH.pack(len(mine))
    head = yield proof + sealed + mine, _SEAL + _LENGTH.size
    (length,) = _LENGTH.unpack_from(head, _SEAL)
    if not 1 + _SHARE <= length <= MOST_SAID:
        raise Refused("who listens at its address does not speak this protocol")
    theirs = yield b"", length
    if not hmac.compare_digest(head[:_SEAL], _seal(me, b"server", begun + mine, theirs)):
        raise Refused("who listens at its address does not know the token")
    text = theirs[1 + _SHARE :]
    if theirs[0] != _WELCOME:
        raise Refused(f"it refused: {text.decode('utf-8', 'replace')}")
    there, back = _keys(me, begun + mine + theirs)
    return Opened(b"", peer, text, Keys(there, back) if me.sealed else None)


def _answer(me: Identity, certified: Callable[[int], bool], admit: Admit) -> Steps:
    first = yield b"", hello.SIZE
    problem = hello.objection(first, me.job, 0, hello.ROLE_DATA)
    if problem:
        raise Refused(problem)
    second = hello.server_hello(me.key, first)
    begun = first + second
    head = yield second, hello.PROOF_BYTES + _SEAL + _LENGTH.size
    if not hello.proof_holds(me.key, first, second, head[: hello.PROOF_BYTES]):
        raise Refused("does not know the token")
    (length,) = _LENGTH.unpack_from(head, hello.PROOF_BYTES + _SEAL)
    if not _ENDS.size + _SHARE <= length <= MOST_SAID:
        raise Refused("does not speak this protocol")
    theirs = yield b"", length
    seal = head[hello.PROOF_BYTES :][:_SEAL]
    if not hmac.compare_digest(seal, _seal(me, b"client", begun, theirs)):
        raise Refused("does not know the token")
    number, wanted = _ENDS.unpack_from(theirs)
    said = theirs[_ENDS.size + _SHARE :]
    try:
        if not certified(number):
            raise Refused(f"its certificate is not number {number}'s")
        if wanted != me.number:
            raise Refused(f"this is number {me.number}, not {wanted}")
        outcome, text = _WELCOME, admit(number, said)
    except Refused as error:
        outcome, text = _REFUSED, str(error).encode()[: MOST_SAID - 64]
    mine = bytes([outcome]) + secrets.token_bytes(_SHARE) + text
    last = _seal(me, b"server", begun + theirs, mine) + _LENGTH.pack(len(mine)) + mine
    if outcome != _WELCOME:
        yield last, 0
        raise Refused(text.decode())
    there, back = _keys(me, begun + theirs + mine)
    return Opened(last, number, said, Keys(back, there) if me.sealed else None)


def _seal(me: Identity, side: bytes, before: bytes, said: bytes) -> bytes:
    return hmac.digest(me.key, b"link " + side + before + said, "sha256")


def _keys(me: Identity, all_said: bytes) -> tuple[bytes, bytes]:
    """Keys from client to server and back, of everything that was said and the token."""
    root = hmac.digest(me.key, b"link keys" + all_said, "sha256")
    return hello.derive_key(root, "client to server"), hello.derive_key(root, "server to client")


def _within(tls: Any, incoming: Any, outgoing: Any, steps: Steps) -> Steps:
    """A conversation inside TLS. Reads record by record, so nothing after it."""
    ssl = _ssl()

    def record() -> Generator[tuple[bytes, int], bytes, None]:
        header = yield outgoing.read(), _TLS_HEADER
        length = int.from_bytes(header[3:], "big")
        if not 0 < length <= _TLS_RECORD:
            raise Refused("does not speak TLS")
        incoming.write(header + (yield b"", length))

    try:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                yield from record()
        sends, wants = next(steps)
        while True:
            if sends:
                tls.write(sends)
            got = b""
            while len(got) < wants:
                try:
                    got += tls.read(wants - len(got))
                except ssl.SSLWantReadError:
                    yield from record()
            if not wants:  # the last words of a refusal
                yield outgoing.read(), 0
            sends, wants = steps.send(got)
    except StopIteration as end:
        opened: Opened = end.value
        if opened.last:
            tls.write(opened.last)
        return Opened(outgoing.read(), opened.number, opened.said, opened.keys)
    except ssl.SSLError as error:
        yield outgoing.read(), 0  # TLS's own words for it
        raise Refused(f"does not get through TLS ({error.reason or error})") from None


def context_of(own: Certificates, server: bool) -> Any:
    """TLS 1.3 with certificates on both sides."""
    ssl = _ssl()
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.check_hostname = not server  # the server looks when it has been told who is there
    made.load_verify_locations(cadata=own.authority.decode())
    if server:
        made.num_tickets = 0  # nothing is to follow
    # The module loads keys from files only: one that has no name and ends with its descriptor.
    fd = os.memfd_create("disttrain-links", os.MFD_CLOEXEC)
    try:
        os.write(fd, own.key + own.certificate)
        made.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return made
