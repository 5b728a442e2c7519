"""The handshake of every listener: 64 bytes each way and a proof, before anything is parsed.

    client: magic 8 | version u16, role u16, epoch u32 | job 16 | nonce 16 | zeros 16
    server: magic 8 | nonce 16 | HMAC(key, "server" + client's 64 bytes + nonce) 32 | zeros 8
    client: HMAC(key, "client" + client's 64 bytes + nonce) 32

HMAC is HMAC-SHA256 under a key derived (HKDF, RFC 5869) from the job's token for this purpose.
Both sides prove that they know the token; fresh nonces and the named direction make replayed and
reflected proofs worthless. There is no mode without it. Pure functions on bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct

SIZE = 64
PROOF_BYTES = 32
TOKEN_BYTES = 32
ROLE_STORE = 1
ROLE_RPC = 2
ROLE_DATA = 3

_MAGIC = b"dtrain\x00\x01"
_VERSION = 1
_CLIENT = struct.Struct("<8sHHI16s16s16x")
_SERVER = struct.Struct("<8s16s32s8x")


def derive_key(token: bytes, purpose: str) -> bytes:
    """A key for one purpose, so that what is said in one protocol proves nothing in another."""
    extracted = hmac.digest(b"disttrain", token, "sha256")
    return hmac.digest(extracted, purpose.encode() + b"\x01", "sha256")


def job_hash(job_id: str) -> bytes:
    """16 bytes that name a job. Not a secret."""
    return hashlib.sha256(job_id.encode()).digest()[:16]


def client_hello(job: bytes, epoch: int, role: int = ROLE_STORE) -> bytes:
    """What a client says first; has a fresh nonce."""
    nonce = os.urandom(16)
    return _CLIENT.pack(_MAGIC, _VERSION, role, epoch & 0xFFFFFFFF, job, nonce)


def objection(hello: bytes, job: bytes, epoch: int, role: int = ROLE_STORE) -> str:
    """Why a client's hello is refused; empty when it may go on. Stores that programs make for
    themselves have epoch 0, which fits any."""
    magic, version, its_role, its_epoch, its_job, _ = _CLIENT.unpack(hello)
    if magic != _MAGIC:
        return "does not speak this protocol"
    if version != _VERSION:
        return f"speaks version {version}, not {_VERSION}"
    if its_role != role or any(hello[-16:]):
        return "wants something else than this listener"
    if its_job != job:
        return "belongs to another job"
    either = role == ROLE_STORE and 0 in (epoch, its_epoch)
    if its_epoch != epoch & 0xFFFFFFFF and not either:
        return f"belongs to epoch {its_epoch}, not {epoch}"
    return ""


def server_hello(key: bytes, hello: bytes) -> bytes:
    """The server's answer: its nonce and its proof."""
    nonce = os.urandom(16)
    return _SERVER.pack(_MAGIC, nonce, _proof(key, b"server", hello, nonce))


def is_server(answer: bytes) -> bool:
    """Whether these 64 bytes are a server's hello, whatever it knows."""
    return answer.startswith(_MAGIC)


def client_proof(key: bytes, hello: bytes, answer: bytes) -> bytes | None:
    """The client's proof; None when the server's answer proves nothing."""
    magic, nonce, proof = _SERVER.unpack(answer)
    if magic != _MAGIC or not hmac.compare_digest(proof, _proof(key, b"server", hello, nonce)):
        return None
    return _proof(key, b"client", hello, nonce)


def proof_holds(key: bytes, hello: bytes, answer: bytes, proof: bytes) -> bool:
    """Does the client know the token?"""
    nonce = _SERVER.unpack(answer)[1]
    return hmac.compare_digest(proof, _proof(key, b"client", hello, nonce))


def _proof(key: bytes, direction: bytes, hello: bytes, nonce: bytes) -> bytes:
    return hmac.digest(key, direction + hello + nonce, "sha256")
