"""Listening at a port, and who has it where that fails.

Knows sockets and /proc; no store.
"""

from __future__ import annotations

import ipaddress
import math
import os
import socket
from collections.abc import Iterator

from ...errors import StoreError

_LISTEN = "0A"


class PortTaken(StoreError):
    """Another socket listens at this port."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at ``host``:``port`` (0: any free one) and does not block.

    Raises ``PortTaken`` with the process that has the port, where it can be seen, or ``StoreError``
    for a host that is not this machine, or not known, or a port that this user may not have.
    """
    where = f"The server socket has failed to listen on any local network address: {host}:{port}"
    family, address = known(host, port)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        kind = PortTaken if port and error.errno == 98 else StoreError
        who = f" by {holder(port)}" if kind is PortTaken else ""
        raise kind(
            f"{where}: {error.strerror or error}{who}. Give a free port (0 takes any) and an "
            "address of this machine"
        ) from None
    return listener


def known(host: str, port: int) -> tuple[int, tuple]:
    """The kind of address and the address of ``host``:``port``, or ``StoreError``."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise StoreError(
            f"store at {host}:{port}: the name {host!r} is not known ({error.strerror or error}). "
            "Give the address of the host of rank 0 (MASTER_ADDR), or 127.0.0.1 where all ranks "
            "run on one host"
        ) from None
    return found[0][0], found[0][4]


def is_of_this_machine(kind: int, address: tuple) -> bool:
    """Whether packets to that address stay here."""
    with socket.socket(kind, socket.SOCK_STREAM) as tried:
        try:
            tried.bind((address[0], 0, *address[2:]))
        except OSError:
            return False
        return True


def is_loopback(host: str) -> bool:
    """Whether that is an address, or the name, which means the machine itself to every machine."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def stop(listener: socket.socket) -> None:
    """Listen no more, also where a process that was forked from this one has the socket, too."""
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed
    listener.close()


def holder(port: int) -> str:
    """The process that listens at ``port`` of this machine, as a text: of several that have the
    socket the oldest one, from which the others were forked."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening(table, port)}
    pids = filter(str.isdigit, os.listdir("/proc"))
    have = [pid for pid in pids if inodes & set(_sockets(pid))]
    if not have:
        return "a process that this user cannot see"
    pid = min(have, key=_started)
    return f"process {pid} ({_name(pid)})"


def _listening(table: str, port: int) -> list[str]:
    """The inodes of the sockets that listen at ``port``."""
    try:
        with open(f"/proc/net/{table}") as file:
            rows = [line.split() for line in file.readlines()[1:]]
    except OSError:
        return []
    return [r[9] for r in rows if r[3] == _LISTEN and int(r[1].rpartition(":")[2], 16) == port]


def _sockets(pid: str) -> Iterator[str]:
    """The inodes of the sockets of a process, as far as they are ours to see."""
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for fd in fds:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _started(pid: str) -> float:
    """When it was started, in ticks after the boot."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return math.inf  # gone


def _name(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return "gone"
