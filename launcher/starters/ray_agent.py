"""What runs on Ray's machines: an agent of the job, and the rendezvous at which the agents meet.

Both are actors. The agent is a ``dtrun`` of its own process, so that nothing of Ray is in the
ranks; its output goes to whoever reads it. It ends with its actor. The rendezvous is beside Ray's
head, without which there is no cluster, so that the job outlives every machine that it runs on.
"""

from __future__ import annotations

import importlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence

from disttrain import settings
from disttrain.lifetime import die_with_parent

from ..registry.embedded import EmbeddedRegistry

CHUNK = 1 << 16
MOST_WAITING = 256  # pieces of output that wait for a reader; then the ranks wait, as on a pipe
CONNECT = 10.0

Piece = tuple[int, bytes]  # 1 or 2, and what came there


class Agent:
    """One node's ``dtrun``. ``token``: the job's, which reaches the process by a descriptor."""

    def __init__(self, token: bytes) -> None:
        self.token = token
        self.pieces: queue.Queue[Piece] = queue.Queue(MOST_WAITING)
        self.process: subprocess.Popen[bytes] | None = None
        self.ended = threading.Event()
        self.code = 0

    def address(self) -> str:
        """Of this machine, as the others reach it."""
        return _address()

    def start(self, flags: Sequence[str], folder: str, threads: str) -> None:
        """Start ``dtrun`` with these words. ``threads``: what Ray has set OMP_NUM_THREADS to."""
        begun = threading.Event()
        words = [sys.executable, "-m", "disttrain_launcher", "--local-addr", self.address(), *flags]
        keeper = threading.Thread(
            target=self._keep, args=(words, folder, threads, begun), daemon=True
        )
        keeper.start()
        begun.wait()

    def _keep(self, words: list[str], folder: str, threads: str, begun: threading.Event) -> None:
        """In a thread that lives as long as the process: who dies with its parent dies with the
        thread that has started it."""
        fd = os.memfd_create("disttrain-token", os.MFD_CLOEXEC)
        os.write(fd, self.token)
        env = {**settings.environment(), settings.TOKEN_FILE.name: f"fd:{fd}"}
        if env.get("OMP_NUM_THREADS") == threads:  # Ray's, who knows nothing of ranks
            del env["OMP_NUM_THREADS"]
        me = os.getpid()
        try:
            self.process = subprocess.Popen(
                words, cwd=folder if os.path.isdir(folder) else None, env=env, pass_fds=[fd],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                preexec_fn=lambda: die_with_parent(me),
            )  # fmt: skip
        finally:
            os.close(fd)
            begun.set()
        readers = [
            threading.Thread(target=self._read, args=(which, pipe), daemon=True)
            for which, pipe in ((1, self.process.stdout), (2, self.process.stderr))
        ]
        for reader in readers:
            reader.start()
        code = self.process.wait()
        for reader in readers:
            reader.join()
        self.code = 128 - code if code < 0 else code
        self.ended.set()
        self.pieces.put((0, b""))  # wakes who waits for output

    def _read(self, which: int, pipe) -> None:
        while data := os.read(pipe.fileno(), CHUNK):
            self.pieces.put((which, data))
        pipe.close()

    def read(self, seconds: float) -> tuple[list[Piece], int | None]:
        """What has come since, after waiting for it; and the exit code, once all was read."""
        found: list[Piece] = []
        try:
            found.append(self.pieces.get(timeout=seconds))
            while True:
                found.append(self.pieces.get_nowait())
        except queue.Empty:
            pass
        over = self.ended.is_set() and self.pieces.empty()
        return [piece for piece in found if piece[0]], self.code if over else None

    def signal(self, number: int) -> None:
        """Pass a signal on."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class Meeting:
    """The job's rendezvous. It lives as long as its actor."""

    def __init__(self, token: bytes, ttl: float) -> None:
        self.host = _address()
        self.registry = EmbeddedRegistry(self.host, 0, True, token, ttl, ttl, CONNECT)

    def endpoint(self) -> str:
        """Where the agents meet."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.registry.port}"


def _address() -> str:
    return str(importlib.import_module("ray").util.get_node_ip_address())
