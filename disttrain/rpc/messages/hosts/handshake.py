"""How two workers begin a stream between hosts: the store's handshake, and who they are.

    1. client: hello                               (64 bytes, see ``store.hello``)
    2. server: hello and proof                     (64 bytes)
    3. client: proof, seal of the introduction, introduction
    4. server: welcome, sealed                     (its life, limits and listener for links)

The introduction says who the client is, whom it means to speak to, and where it can be reached. It
is read after the proof and its seal have been found right. Each of the four is one frame; a client
that leaves the order is refused. Pure functions on bytes.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, replace

from ....comm.store import hello
from ..contract.message import Limits

JOB = hello.job_hash("disttrain.rpc")  # the key is the job's own, so this is a name of the protocol
MOST_BYTES = 2048  # the longest of the four
REQUESTS, ANSWERS, LARGE_ANSWERS = LANES = (0, 1, 2)  # what a stream carries

_SEAL = 32
_INTRODUCTION = struct.Struct("<HHB3x16s")
_WELCOME = struct.Struct("<16sQQQQHB")


@dataclass(frozen=True)
class Introduction:
    """Who opens a stream. ``life`` tells one relation of two workers from the next: a worker that
    was started again, or has left and comes back, has another one."""

    worker: int
    wanted: int
    lane: int
    life: bytes
    address: str

    def pack(self) -> bytes:
        fixed = _INTRODUCTION.pack(self.worker, self.wanted, self.lane, self.life)
        return fixed + self.address.encode()


def key(token: bytes) -> bytes:
    """The key of all proofs, from the workers' secret."""
    return hello.derive_key(token, "rpc streams")


def begin() -> bytes:
    """Frame 1."""
    return hello.client_hello(JOB, 0, hello.ROLE_RPC)


def objection(first: bytes) -> str:
    """Why frame 1 is refused; empty when it may go on."""
    if len(first) != hello.SIZE:
        return "does not speak this protocol"
    return hello.objection(first, JOB, 0, hello.ROLE_RPC)


def reply(secret: bytes, first: bytes) -> bytes:
    """Frame 2."""
    return hello.server_hello(secret, first)


def introduce(secret: bytes, first: bytes, second: bytes, who: Introduction) -> bytes | None:
    """Frame 3; None where the server has not proved that it knows the secret."""
    proof = hello.client_proof(secret, first, second) if len(second) == hello.SIZE else None
    if proof is None:
        return None
    said = who.pack()
    return proof + _seal(secret, b"introduction", first, second, said) + said


def introduced(secret: bytes, first: bytes, second: bytes, third: bytes) -> Introduction | None:
    """Who sent frame 3; None where it proves nothing."""
    proof, seal = third[: hello.PROOF_BYTES], third[hello.PROOF_BYTES :][:_SEAL]
    said = third[hello.PROOF_BYTES + _SEAL :]
    if len(proof) != hello.PROOF_BYTES or not hello.proof_holds(secret, first, second, proof):
        return None
    if not hmac.compare_digest(seal, _seal(secret, b"introduction", first, second, said)):
        return None
    if not _INTRODUCTION.size <= len(said) <= MOST_BYTES:
        return None
    worker, wanted, lane, life = _INTRODUCTION.unpack_from(said)
    address = said[_INTRODUCTION.size :].decode("utf-8", "replace")
    return Introduction(worker, wanted, lane, life, address)


@dataclass(frozen=True)
class Welcome:
    """What the server says. ``port``: its listener for ``sockets``, on the same address;
    ``sealed``: whether they are encrypted."""

    life: bytes
    limits: Limits
    port: int
    sealed: bool


def welcome(secret: bytes, first: bytes, second: bytes, what: Welcome) -> bytes:
    """Frame 4."""
    limits = what.limits
    most = (limits.message_bytes, limits.payload_bytes, limits.head_bytes, limits.arrays)
    said = _WELCOME.pack(what.life, *most, what.port, what.sealed)
    return _seal(secret, b"welcome", first, second, said) + said


def welcomed(
    secret: bytes, first: bytes, second: bytes, fourth: bytes, limits: Limits
) -> Welcome | None:
    """What the server says, with ``limits`` lowered to what it takes; None where frame 4 is not
    its."""
    seal, said = fourth[:_SEAL], fourth[_SEAL:]
    if len(said) != _WELCOME.size or not hmac.compare_digest(
        seal, _seal(secret, b"welcome", first, second, said)
    ):
        return None
    life, message_bytes, payload_bytes, head_bytes, arrays, port, sealed = _WELCOME.unpack(said)
    both = replace(
        limits,
        message_bytes=min(limits.message_bytes, message_bytes),
        payload_bytes=min(limits.payload_bytes, payload_bytes),
        head_bytes=min(limits.head_bytes, head_bytes),
        arrays=min(limits.arrays, arrays),
    )
    return Welcome(life, both, port, bool(sealed))


def _seal(secret: bytes, what: bytes, first: bytes, second: bytes, said: bytes) -> bytes:
    return hmac.digest(secret, what + first + second + said, "sha256")
