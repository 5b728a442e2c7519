"""Hosts with networks of their own: network namespaces, and between them a wire in user space.

    with Wire(2) as wire:
        run_on(wire, "aabb", body)          ranks 0 and 1 on host a, 2 and 3 on host b
        wire.lose(5)                        of a hundred packets, in each direction
        wire.delay(0.02, 0.005)             seconds, give or take
        wire.block(0, 1); wire.block(1, 0)  what host 0 sends to host 1, and the other way
    wire.overheard()                    all packets so far, as somebody between the hosts sees them

Every namespace has a tun device, and one process carries the packets from one to the other, late,
or never, as it is told: what netem would do where the kernel has it. Needs root and /dev/net/tun;
``why_not()`` says what is missing.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import mmap
import os
import random
import secrets
import select
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

from disttrain.lifetime import die_with_parent
from support.ranks import Outcome, fork_ranks, free_port, values

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _TUN_NO_INFO = 0x400454CA, 0x1001
_DEVICE, _MTU = "wire", 9000
_SETTINGS = struct.Struct("<ddd")  # lost per cent, delay, jitter
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """What keeps this machine from having such hosts; empty where nothing does."""
    if os.geteuid():
        return "network namespaces need root"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    name = f"dtkit{os.getpid()}try"
    try:
        said = _fails("netns", "add", name) or _fails("-n", name, "link")  # not under chroot
    except FileNotFoundError:
        return "there is no ip(8)"
    _fails("netns", "del", name)
    return said


def _fails(*command: str) -> str:
    """What ip(8) says where it cannot do that."""
    tried = subprocess.run(["ip", *command], capture_output=True, text=True)
    return f"ip {command[0]}: {tried.stderr.strip()}" if tried.returncode else ""


def _enter(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Wire:
    """``count`` hosts and what is between them."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.names = [f"dtkit{os.getpid()}{secrets.token_hex(2)}-{i}" for i in range(count)]
        self._seed, self._pid = seed, 0
        self._tuns: list[int] = []
        self._rules = mmap.mmap(-1, 4096)
        self._heard = os.memfd_create("wire", os.MFD_CLOEXEC)

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def __enter__(self) -> Wire:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            for host, name in enumerate(self.names):
                _ip("netns", "add", name)
                self.enter(host)
                self._tuns.append(_open_tun())
                _enter(home)
                _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", _DEVICE)
                _ip("-n", name, "link", "set", _DEVICE, "mtu", str(_MTU), "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        finally:
            _enter(home)
            os.close(home)
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            try:
                die_with_parent(parent)
                self._carry()
            finally:
                os._exit(0)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        for fd in self._tuns:
            os.close(fd)
        os.close(self._heard)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def enter(self, host: int) -> None:
        """Make the calling thread, and what it starts from now on, part of a host."""
        fd = os.open(f"/run/netns/{self.names[host]}", os.O_RDONLY)
        try:
            _enter(fd)
        finally:
            os.close(fd)

    # What is told to the wire holds from the next packet on; from any process.

    def lose(self, percent: float) -> None:
        self._rules[0:8] = struct.pack("<d", percent)

    def delay(self, seconds: float, jitter: float = 0.0) -> None:
        self._rules[8:24] = struct.pack("<dd", seconds, jitter)

    def block(self, source: int, target: int, blocked: bool = True) -> None:
        self._rules[64 + source * len(self.names) + target] = blocked

    def overheard(self) -> bytes:
        return os.pread(self._heard, os.fstat(self._heard).st_size, 0)

    def _carry(self) -> None:
        """The wire itself."""
        chance, late, rules, n = random.Random(self._seed), [], self._rules, len(self.names)
        poll = select.poll()
        for fd in self._tuns:
            poll.register(fd, select.POLLIN)
        count = 0
        while True:
            wait = None if not late else max(0.0, 1000 * (late[0][0] - time.monotonic()))
            for fd, _ in poll.poll(wait):
                packet = os.read(fd, _MTU + 64)
                target = packet[19] - 1
                if packet[0] >> 4 != 4 or not 0 <= target < n:
                    continue
                os.write(self._heard, packet)
                lost, delay, jitter = _SETTINGS.unpack_from(rules, 0)
                source = self._tuns.index(fd)
                if rules[64 + source * n + target] or chance.random() * 100 < lost:
                    continue
                count += 1
                when = time.monotonic() + max(0.0, delay + chance.uniform(-jitter, jitter))
                heapq.heappush(late, (when if delay else 0.0, count, target, packet))
            while late and late[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(late)
                os.write(self._tuns[target], packet)


def _open_tun() -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _TUN_NO_INFO))
    return fd


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def outcomes_on(
    wire: Wire, hosts: str, fn: Callable[[int], Any], timeout: float = 30.0
) -> list[Outcome]:
    """Call ``fn(rank)`` on a forked rank for each letter, on host "a", "b" ... of the wire, in the
    environment in which ``init_process_group()`` finds the others. Every rank's outcome."""
    port = free_port()
    with tempfile.NamedTemporaryFile() as token:
        token.write(secrets.token_bytes(32))
        token.flush()

        def body(rank: int) -> Any:
            wire.enter(ord(hosts[rank]) - ord("a"))
            os.environ.update(
                MASTER_ADDR=wire.address(ord(hosts[0]) - ord("a")),
                MASTER_PORT=str(port),
                RANK=str(rank),
                WORLD_SIZE=str(len(hosts)),
                DISTTRAIN_TOKEN_FILE=token.name,
            )
            return fn(rank)

        return fork_ranks(len(hosts), body, timeout)


def run_on(wire: Wire, hosts: str, fn: Callable[[int], Any], timeout: float = 30.0) -> list:
    """The same; the results by rank, or the first failure."""
    return values(outcomes_on(wire, hosts, fn, timeout))
