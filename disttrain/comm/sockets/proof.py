"""What two processes need before they open sockets to each other: a secret that only those have who
meet through one store, and the address that a host has for another one."""

from __future__ import annotations

import hmac
import secrets
import socket
from typing import Any

from ...errors import ConfigError

_TOKEN_BYTES = 32
_ANY_PORT = 9  # nothing is sent there: the kernel is asked for the way only


def shared_token(store: Any, name: str) -> bytes:
    """The secret of all who meet through ``store`` under ``name``; whoever asks first makes it.

    Stores let nobody in who does not belong to the job (see ``store.hello``), so what lies there
    proves that somebody does. ``store``: any ``Store``.
    """
    mine = secrets.token_hex(_TOKEN_BYTES)
    agreed = bytes.fromhex(bytes(store.compare_set(f"{name}/token", "", mine)).decode())
    # Between hosts, what lies in the store can be read on its way; what it is keyed with cannot.
    own = store.secret(f"shared token {name}")
    return hmac.digest(own, agreed, "sha256") if own else agreed


def address_towards(host: str) -> str:
    """The address of this host from which packets to ``host`` leave."""
    try:
        kind, _, _, _, where = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as asked:
            asked.connect(where)
            return str(asked.getsockname()[0])
    except OSError as error:
        raise ConfigError(
            f"rpc: there is no way from this host to {host!r} ({error}); name the address that "
            "other hosts can reach with host="
        ) from None
