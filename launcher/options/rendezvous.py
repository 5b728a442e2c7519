"""How the nodes of a job are to find each other: torchrun's options of that kind, as data.

Every option is checked here; nothing is opened, no name looked up.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from dataclasses import dataclass

ONE_NODE, LOOPBACK = "1:1", "127.0.0.1"  # where nobody says anything
BACKENDS = {"static": "static", "c10d": "c10d", "etcd": "etcd", "etcd-v2": "etcd"}
PORTS = {"static": 29500, "c10d": 29400, "etcd": 2379}
# Seconds between two signs of life, and how many of them a lease is long. An etcd that chooses a
# leader anew confirms nothing for more than a second.
LEASE = {"static": (0.5, 4), "c10d": (0.5, 4), "etcd": (0.5, 6)}
ELECTION = 7.0  # seconds by which etcd may end a lease later then: it lets all begin anew

# --rdzv-conf: seconds, except for the last ones
_SECONDS = ("join_timeout", "last_call_timeout", "close_timeout", "keep_alive_interval",
            "name_timeout", "timeout")  # fmt: skip
_OTHERS = ("keep_alive_max_attempt", "is_host", "tls", "same_command")
_ETCD = ("protocol", "cacert", "cert", "key", "user", "password", "password_file", "etcd_prefix")
# torchrun's, which have nothing to set here
_IDLE = {
    "read_timeout": "what waits here ends by join_timeout and keep_alive_interval",
    "heartbeat_timeout": "keep_alive_interval times keep_alive_max_attempt is what it would say",
    "store_type": "the store is a job's own, on the first node",
    "use_libuv": "there is one server for both",
    "rank": "--node-rank says it",
}
TLS_FILES = ("cert", "key", "cacert")
_SAME = {
    "ca": "cacert",
    "ssl_cert": "cert",
    "ssl_cert_key": "key",
    "ca_cert": "cacert",
}  # names of etcd-v2
KEYS = (*_SECONDS, *_OTHERS, *_ETCD, *_IDLE)  # all that it knows


@dataclass(frozen=True)
class Rendezvous:
    """What is known before anybody is asked. ``endpoint``: as it was given, ``host`` and ``port``
    the same where it names one place. ``is_host``: whether this node has the registry; None: as
    the address says. ``name_timeout``: for how long a name may be unknown before that is an error.
    ``conf``: the words of --rdzv-conf that only some backends understand. ``hints``: what people
    are to be told of words that set nothing."""

    backend: str
    endpoint: str
    host: str
    port: int
    run_id: str
    min_nodes: int
    max_nodes: int
    node_rank: int | None = None
    local_addr: str | None = None
    is_host: bool | None = None
    join_timeout: float = 600.0
    last_call: float = 30.0
    close_timeout: float = 30.0
    name_timeout: float = 0.0
    interval: float = 0.5
    ttl: float = 2.0
    same_command: bool = True
    spares: int = 0
    tls: bool = False
    conf: tuple[tuple[str, str], ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def fence(self) -> float:
        """Seconds without a confirmed lease after which this node stops its ranks: before anybody
        else can take it for lost."""
        return self.ttl - min(0.25, self.ttl / 4)


def add_flags(p: argparse.ArgumentParser) -> None:
    """Add the options to the command line."""
    add = p.add_argument
    add("--nnodes", default=ONE_NODE, metavar="N",
        help="machines: a number, or MIN:MAX of an elastic job")  # fmt: skip
    add("--spares", type=int, default=0, metavar="N",
        help="machines beyond --nnodes that stand by for those that are lost")  # fmt: skip
    add("--rdzv-id", "--run-id", dest="rdzv_id", default="none", help="the job's name")
    add("--rdzv-backend", default="static", metavar="NAME",
        help="how several nodes find each other: static, c10d or etcd")  # fmt: skip
    add("--rdzv-endpoint", default="", metavar="HOST:PORT",
        help="where: on the first node, or etcd (one or more, with commas)")  # fmt: skip
    add("--rdzv-conf", default="", metavar="K=V,...",
        help="join_timeout, last_call_timeout, keep_alive_interval ... in seconds")  # fmt: skip
    add("--token-file", default=None, metavar="F",
        help="secret bytes that all nodes of the job have (also DISTTRAIN_TOKEN_FILE)")  # fmt: skip
    add("--node-rank", type=int, default=None, help="this machine's number (with static)")
    add("--master-addr", default=LOOPBACK, help="the first node, as --rdzv-endpoint says it")
    add("--master-port", type=int, default=0, help="its port; on one machine MASTER_PORT (0: any)")
    add("--local-addr", default=None, help="this machine's address, as the others reach it")


def rendezvous_of(p: argparse.ArgumentParser, given: argparse.Namespace) -> Rendezvous | None:
    """What the command line says; None where the job is to run on one machine alone."""
    fewest, most = _nodes(p, given)
    if given.spares < 0 or (given.spares and given.standalone):
        p.error(f"--spares {given.spares}: a number of further machines is needed")
    if (most == 1 and not given.spares) or given.standalone:
        if given.node_rank not in (None, 0) and _is_static(given):
            p.error(f"--node-rank {given.node_rank}: with one machine it is 0")
        return None
    _refuse_others(p, given)
    backend = BACKENDS.get(given.rdzv_backend.lower().replace("_", "-"))
    if backend is None:
        known = ", ".join(BACKENDS)
        p.error(f"--rdzv-backend {given.rdzv_backend}: one of {known} is needed")
    conf = _conf(p, given.rdzv_conf)
    _refuse_tls(p, conf, backend)
    endpoint = given.rdzv_endpoint
    if not endpoint and backend == "static":
        endpoint = f"{given.master_addr}:{given.master_port or PORTS[backend]}"
    if not endpoint:
        endpoint = f"localhost:{PORTS[backend]}"  # as with torchrun: all nodes on this machine
    host, port = ("", 0) if backend == "etcd" else _place(p, endpoint, PORTS[backend])
    rank = given.node_rank
    if backend == "static" and rank is not None and not 0 <= rank < most:
        p.error(f"--node-rank {rank}: with --nnodes {given.nnodes} 0 to {most - 1} are there")
    interval = _number(p, conf, "keep_alive_interval", LEASE[backend][0])
    attempts = _number(p, conf, "keep_alive_max_attempt", LEASE[backend][1])
    return Rendezvous(
        backend=backend,
        endpoint=endpoint,
        host=host,
        port=port,
        run_id=given.rdzv_id,
        min_nodes=fewest,
        max_nodes=most,
        node_rank=rank if backend == "static" else None,
        local_addr=given.local_addr,
        is_host=_is_host(p, conf, backend, rank),
        join_timeout=_number(p, conf, "join_timeout", _number(p, conf, "timeout", 600.0)),
        last_call=_number(p, conf, "last_call_timeout", 30.0),
        close_timeout=_number(p, conf, "close_timeout", 30.0),
        name_timeout=_number(p, conf, "name_timeout", 0.0),
        interval=interval,
        ttl=interval * attempts,
        same_command=_flag(p, conf, "same_command", True),
        spares=given.spares,
        tls=backend != "etcd" and _flag(p, conf, "tls", False),
        conf=tuple((k, v) for k, v in conf.items() if k in _ETCD),
        hints=_hints(conf, backend),
    )


def _is_static(given: argparse.Namespace) -> bool:
    """Is a node's number more than a variable that stands in every node's environment?"""
    named = given.rdzv_endpoint or given.master_port
    return given.rdzv_backend == "static" and bool(named) and not given.standalone


def _refuse_others(p: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Options that mean one machine."""
    for name, said in (("--simulate", given.simulate), ("--fake", given.fake),
                       ("--backend mpi", given.backend == "mpi")):  # fmt: skip
        if said:
            p.error(f"{name} with --nnodes {given.nnodes}: it is for one machine; use --nnodes 1")


def _refuse_tls(p: argparse.ArgumentParser, conf: Mapping[str, str], backend: str) -> None:
    """Who asks for encryption is not to go without."""
    wanted = _flag(p, conf, "tls", False)
    if backend == "etcd":
        if wanted and conf.get("protocol") != "https":
            p.error("--rdzv-conf tls=1: an etcd is reached so by protocol=https (cacert=FILE)")
        return
    files = [key for key in TLS_FILES if key in conf]
    if files and not wanted:
        p.error(f"--rdzv-conf {files[0]}={conf[files[0]]}: it is for tls=1, which is not given")
    if files and len(files) < len(TLS_FILES):
        p.error(
            f"--rdzv-conf tls=1 with {', '.join(files)}: all of {', '.join(TLS_FILES)} are needed, "
            "or none of them (certificates are made from the job's token then)"
        )


def _hints(conf: Mapping[str, str], backend: str) -> tuple[str, ...]:
    """Of each word that sets nothing: why."""
    idle = dict(_IDLE)
    if backend == "etcd":
        idle["is_host"] = "the nodes meet at the etcd"
    else:
        alone = [key for key in _ETCD if key not in TLS_FILES]
        idle |= dict.fromkeys(alone, "it is for --rdzv-backend etcd")
    return tuple(f"--rdzv-conf {key} sets nothing: {idle[key]}" for key in conf if key in idle)


def _nodes(p: argparse.ArgumentParser, given: argparse.Namespace) -> tuple[int, int]:
    low, _, high = given.nnodes.partition(":")
    try:
        fewest, most = int(low), int(high or low)
    except ValueError:
        p.error(f"--nnodes {given.nnodes}: a number or MIN:MAX is needed")
    if fewest < 1 or most < fewest:
        p.error(f"--nnodes {given.nnodes}: 1 <= MIN <= MAX is needed")
    return fewest, most


def _conf(p: argparse.ArgumentParser, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = pair.partition("=")
        if not equals or not value.strip():
            p.error(f"--rdzv-conf {text}: {pair!r} is no key=value")
        key = _SAME.get(key.strip(), key.strip())
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else ""
            p.error(f"--rdzv-conf {text}: {key} is none of {', '.join(KEYS)}{hint}")
        found[key] = value.strip()
    return found


def _number(p: argparse.ArgumentParser, conf: Mapping[str, str], key: str, default: float) -> float:
    try:
        value = float(conf.get(key, default))
    except ValueError:
        value = -1.0
    needed = (
        2.0 if key == "keep_alive_max_attempt" else 0.05 if key == "keep_alive_interval" else 0.0
    )
    if not needed <= value <= 1e6:
        p.error(f"--rdzv-conf {key}={conf[key]}: a number from {needed:g} to 1000000 is needed")
    return value


def _flag(p: argparse.ArgumentParser, conf: Mapping[str, str], key: str, default: bool) -> bool:
    text = conf.get(key, str(default)).lower()
    if text not in ("1", "0", "true", "false", "t", "f", "yes", "no", "y", "n"):
        p.error(f"--rdzv-conf {key}={conf[key]}: 1 or 0 is needed")
    return text[0] in "1ty"


def _is_host(
    p: argparse.ArgumentParser, conf: Mapping[str, str], backend: str, rank: int | None
) -> bool | None:
    if "is_host" in conf:
        return _flag(p, conf, "is_host", False)
    return rank == 0 if backend == "static" and rank is not None else None


def _place(p: argparse.ArgumentParser, endpoint: str, port: int) -> tuple[str, int]:
    """Host and port of "host", "host:port", "[::1]:port"."""
    text = endpoint
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        given = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, given = text, ""
    else:
        host, _, given = text.partition(":")
    if not host or (given and not given.isdigit()) or int(given or port) > 65535:
        p.error(f"--rdzv-endpoint {endpoint}: HOST:PORT is needed, with a port up to 65535")
    if given == "0":
        p.error(f"--rdzv-endpoint {endpoint}: several nodes need one port that all know, not 0")
    return host, int(given or port)
