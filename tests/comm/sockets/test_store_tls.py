"""Certificates for a store: of the token, and of files that somebody's own authority has signed."""

from __future__ import annotations

import datetime
import ipaddress
from contextlib import closing

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from disttrain.comm.sockets.store_tls import from_files, from_token
from disttrain.comm.store import TCPStore
from disttrain.comm.store.server import StoreServer
from disttrain.errors import ConfigError, StoreRefused

TOKEN = b"t" * 32


def authority(folder, name: str):
    """(sign, path of its certificate)"""
    key = ec.generate_private_key(ec.SECP256R1())
    title = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def made(subject, public, names, ca=False):
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject).issuer_name(title).public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
        )  # fmt: skip
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    path = folder / f"{name}.pem"
    path.write_bytes(made(title, key.public_key(), [], ca=True))

    def sign(who: str, *names: str) -> tuple[str, str]:
        own = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, who)])
        told = [
            x509.IPAddress(ipaddress.ip_address(n)) if n[0].isdigit() else x509.DNSName(n)
            for n in names
        ]
        cert, its = folder / f"{who}.crt", folder / f"{who}.key"
        cert.write_bytes(made(subject, own.public_key(), told))
        its.write_bytes(own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ))  # fmt: skip
        return str(cert), str(its)

    return sign, str(path)


def meet(server_tls, client_tls) -> bytes:
    server = StoreServer(TOKEN, tls=server_tls)
    server.start()
    with closing(server), closing(
        TCPStore("127.0.0.1", server.port, token=TOKEN, tls=client_tls, timeout=5)
    ) as store:  # fmt: skip
        store.set("a", "b")
        return store.get("a")


def test_files_of_one_authority_meet_and_others_do_not(tmp_path):
    sign, ca = authority(tmp_path, "ours")
    a, b = sign("a", "127.0.0.1", "localhost"), sign("b", "elsewhere")
    assert meet(from_files(*a, ca, "127.0.0.1"), from_files(*b, ca, "127.0.0.1")) == b"b"
    with pytest.raises(StoreRefused, match=r"127\.0\.0\.1"):  # the server's is for another host
        meet(from_files(*b, ca, "127.0.0.1"), from_files(*a, ca, "127.0.0.1"))
    other, their_ca = authority(tmp_path, "theirs")
    c = other("c", "127.0.0.1")
    with pytest.raises(StoreRefused):
        meet(from_files(*a, ca, "127.0.0.1"), from_files(*c, ca, "127.0.0.1"))
    with pytest.raises(StoreRefused):
        meet(from_files(*c, their_ca, "127.0.0.1"), from_files(*a, ca, "127.0.0.1"))
    with pytest.raises(StoreRefused):
        meet(from_files(*a, ca, "127.0.0.1"), from_token(TOKEN, "job", False))


def test_files_that_are_none_are_named(tmp_path):
    sign, ca = authority(tmp_path, "ours")
    cert, key = sign("a", "localhost")
    (tmp_path / "text").write_text("no certificate")
    text = str(tmp_path / "text")
    for files, said in (
        ((cert, key, text), f"cacert={text}"),
        ((text, key, ca), f"cert={text}"),
        ((cert, str(tmp_path / "none"), ca), f"cert={cert}"),
        ((cert, sign("b")[1], ca), f"cert={cert}"),
    ):
        with pytest.raises(ConfigError, match=said):
            from_files(*files, "localhost")


def test_who_has_no_store_makes_no_certificate_for_one():
    made = from_token(TOKEN, "job", False)
    assert made.server is None and meet(from_token(TOKEN, "job", True), made) == b"b"
