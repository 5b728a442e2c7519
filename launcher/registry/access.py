"""How an etcd is reached: endpoints, user and certificates, from the words of a command line.

``--rdzv-endpoint a:2379,b:2379,c:2379`` names members of one etcd; ``--rdzv-conf`` and etcd's own
variables (ETCDCTL_USER, ETCDCTL_PASSWORD) say who asks. Pure but for the files that are named; it
knows nothing of requests.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from disttrain.errors import LaunchError

PORT = 2379
KEYS = ("protocol", "cacert", "cert", "key", "user", "password", "password_file", "etcd_prefix")


@dataclass(frozen=True)
class Access:
    """Who to ask, and as whom. ``endpoints``: (protocol, host, port) of each member."""

    endpoints: tuple[tuple[str, str, int], ...]
    user: str = ""
    password: str = field(default="", repr=False)
    cacert: str = ""
    cert: str = ""
    key: str = ""
    prefix: str = "/disttrain"

    @property
    def names(self) -> tuple[str, ...]:
        """The endpoints as people write them."""
        return tuple(
            f"{protocol}://{f'[{host}]' if ':' in host else host}:{port}"
            for protocol, host, port in self.endpoints
        )


def access_of(endpoint: str, conf: Mapping[str, str], env: Mapping[str, str]) -> Access:
    """What ``--rdzv-endpoint`` and ``--rdzv-conf`` say; LaunchError where they say it wrongly."""
    secure = conf.get("protocol", "https" if conf.get("cacert") or conf.get("cert") else "http")
    if secure not in ("http", "https"):
        raise LaunchError(f"--rdzv-conf protocol={secure}: http or https is needed")
    parts = [part.strip() for part in endpoint.split(",")]
    if not endpoint.strip() or not all(parts):
        raise LaunchError(
            f"--rdzv-endpoint {endpoint!r}: the addresses of etcd's members are needed, "
            "such as a:2379,b:2379,c:2379"
        )
    endpoints = tuple(dict.fromkeys(_endpoint(part, secure) for part in parts))
    files = {name: _file(name, conf.get(name, "")) for name in ("cacert", "cert", "key")}
    if bool(files["cert"]) != bool(files["key"]):
        raise LaunchError("--rdzv-conf: cert and key go together; one of the two is missing")
    if any(files.values()) and not any(protocol == "https" for protocol, _, _ in endpoints):
        raise LaunchError("--rdzv-conf cacert, cert, key: they are for https; say protocol=https")
    user, password = _user(conf, env)
    prefix = "/" + conf.get("etcd_prefix", "/disttrain").strip("/")
    return Access(endpoints, user, password, **files, prefix=prefix)


def _endpoint(text: str, protocol: str) -> tuple[str, str, int]:
    given, _, rest = text.rpartition("://")
    if given not in ("", "http", "https"):
        raise LaunchError(f"--rdzv-endpoint {text}: {given} is neither http nor https")
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"  # an IPv6 address alone
    try:
        url = urlsplit(f"//{rest}")
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if not host or url.path.strip("/") or url.query or "@" in rest or port == 0:
        raise LaunchError(f"--rdzv-endpoint {text}: host:port is needed, such as 10.0.0.1:{PORT}")
    return given or protocol, host, port or PORT


def _file(name: str, path: str) -> str:
    if path and not os.access(path, os.R_OK):
        raise LaunchError(f"--rdzv-conf {name}={path}: no such file, or it may not be read")
    return path


def _user(conf: Mapping[str, str], env: Mapping[str, str]) -> tuple[str, str]:
    """User and password: of ``--rdzv-conf``, or else as etcdctl takes them."""
    user, _, password = env.get("ETCDCTL_USER", "").partition(":")
    password = env.get("ETCDCTL_PASSWORD", "") or password
    user = conf.get("user", user)
    if conf.get("password_file"):
        password = _secret(conf["password_file"])
    password = conf.get("password", password)
    if user and not password:
        raise LaunchError(
            f"--rdzv-conf user={user}: its password is needed, in a file that only you can read "
            "(password_file=PATH) or in ETCDCTL_PASSWORD"
        )
    return user, password


def _secret(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"--rdzv-conf password_file={path}: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise LaunchError(
            f"--rdzv-conf password_file={path}: others may read it "
            f"({stat.S_IMODE(mode):04o}); chmod 600 {path}"
        )
    return text
