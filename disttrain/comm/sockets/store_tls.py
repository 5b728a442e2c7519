"""What a store encrypts with: certificates made from the token, or those of files.

With a token nobody has to make certificates: the authority is derived from it, as between workers
(``certificates``), and every process issues itself one. Who has an authority of his own names
files; then the server's certificate must bear the host's name, and both ends have one of it.
"""

from __future__ import annotations

import ssl

from ...errors import ConfigError
from ..store import hello
from ..store.tls import Tls
from .certificates import issue, worker_name
from .handshake import context_of

_SERVER, _CLIENT = 0, 1  # numbers in certificates: nobody but the server is to show the first one


def from_token(token: bytes, job_id: str, hosts: bool) -> Tls:
    """Both ends prove that they know ``token``. ``hosts``: whether this process has the store."""
    job = hello.job_hash(f"store {job_id}")
    server = context_of(issue(token, job, _SERVER), True) if hosts else None
    return Tls(server, context_of(issue(token, job, _CLIENT), False), worker_name(job, _SERVER))


def from_files(cert: str, key: str, cacert: str, host: str) -> Tls:
    """Both ends show ``cert``, which an authority in ``cacert`` has signed; the server's must be
    for ``host``, as clients call it. Raises ``ConfigError`` for a file that is none."""
    made = []
    for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(kind)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        for name, file, load in (
            ("cacert", cacert, lambda c=context: c.load_verify_locations(cacert)),
            ("cert", cert, lambda c=context: c.load_cert_chain(cert, key, _no_password)),
        ):
            try:
                load()
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"--rdzv-conf {name}={file}: {getattr(error, 'reason', None) or error}; PEM "
                    "files are needed, the key (key=FILE) without a password"
                ) from None
        made.append(context)
    made[0].num_tickets = 0  # nobody comes again with less
    return Tls(made[0], made[1], host)


def _no_password() -> str:
    raise ValueError("the key has a password")
