"""Certificates that are derived from a secret, so that whoever knows it needs no other authority.

All workers make the same certificate authority of the secret that they share: its private key is
HKDF (RFC 5869) of it. With that each issues itself a certificate for a key which it makes afresh
and keeps in memory. So a TLS 1.3 handshake with certificates on both sides proves that both know
the secret, and what is said afterwards can be read by nobody else, not even by those who learn the
secret later. The certificate names the worker (``worker_name``).

Uses the package cryptography, loaded with this file's first call. Knows no network.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from ..store import hello

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256 (FIPS 186)
_BEFORE = datetime.timedelta(days=2)  # clocks of hosts differ
_AFTER = datetime.timedelta(days=3650)  # the secret ends with the job


@dataclass(frozen=True)
class Certificates:
    """What TLS asks for, as PEM: whom to trust, the certificate of this worker, and its key."""

    authority: bytes
    certificate: bytes
    key: bytes


def worker_name(job: bytes, worker: int) -> str:
    """The name of a worker in certificates, in the form of a host's. ``job``: as ``hello``'s."""
    return f"worker-{worker}.{job.hex()}.disttrain"


def issue(token: bytes, job: bytes, worker: int) -> Certificates:
    """Certificates of one worker of all who know ``token``."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority_key = ec.derive_private_key(_authority_number(token, job), ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    authority_name = f"authority.{job.hex()}.disttrain"
    name = worker_name(job, worker)
    return Certificates(
        authority=_sign(authority_key, authority_name, authority_key, authority_name, True),
        certificate=_sign(authority_key, authority_name, key, name, False),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _authority_number(token: bytes, job: bytes) -> int:
    """The authority's private number, uniform to within 2**-128 (FIPS 186-5, A.2.1)."""
    halves = [hello.derive_key(token, f"rpc authority {job.hex()} {half}") for half in (1, 2)]
    return 1 + int.from_bytes(b"".join(halves), "big") % (_ORDER - 1)


def _sign(signer: Any, issuer: str, key: Any, name: str, authority: bool) -> bytes:
    """One certificate as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    def titled(text: str) -> Any:
        # A common name has room for 64 characters; what TLS compares is the alternative name.
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])

    now = datetime.datetime.now(datetime.UTC)
    uses = x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(titled(name))
        .issuer_name(titled(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
        .add_extension(x509.BasicConstraints(authority, 0 if authority else None), critical=True)
        .add_extension(uses, critical=True)
    )
    if not authority:
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
