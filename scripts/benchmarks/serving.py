"""A server under load, for both libraries alike: requests a second, how long one takes, memory."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MAX_BATCH, MAX_DELAY = 32, 0.002
PORT, PORT_OF_PEER = 18123, 18124
CLIENTS, SECONDS = 64, 4.0


def digits(nn: Any) -> Any:
    """The network of ``configs/digits_ddp.toml``."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.25), nn.Linear(1024, 64), nn.ReLU(),
        nn.Dropout(0.25), nn.Linear(64, 10),
    )  # fmt: skip


def serving(T: Any) -> dict[str, float]:
    """The digits' network on two cores, for clients that ask again as soon as they are answered."""
    ours = T.__name__ == "disttrain"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.serving_peer"]
        if ours:
            T.manual_seed(0)
            dynamic = {"input": {0: "batch"}}
            program = T.export(digits(T.nn).eval(), (T.zeros(2, 1, 8, 8),), dynamic=dynamic)
            program.save(path := os.path.join(folder, "digits.dtp"))
            command = [sys.executable, "-m", "disttrain.cli", "serve", path, "--port", str(PORT)]
            command += ["--max-batch", str(MAX_BATCH), "--max-delay-ms", str(1e3 * MAX_DELAY)]
        server = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return _measured(PORT if ours else PORT_OF_PEER, server.pid, ours)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


def _measured(port: int, process: int, ours: bool) -> dict[str, float]:
    values = [((7 * k) % 17) / 16 for k in range(64)]
    entry = {"name": "input", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": values}
    body = json.dumps({"inputs": [entry]}).encode()
    request = (
        b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    ) + body
    _wait(port, request)
    load(port, request, CLIENTS, 1.0)
    children = _children(process)  # the peer computes in the process that was started
    before = sum(map(_processor, [process, *children]))
    times = load(port, request, CLIENTS, SECONDS)
    busy = sum(map(_processor, [process, *children])) - before
    memory = max(_memory(p) for p in (children[1:] if ours else [process]))
    what = f"serving: digits' CNN, {CLIENTS} clients"
    return {
        f"{what}, a request": SECONDS / len(times),
        f"{what}, processor time": busy / len(times),
        f"{what}, median": times[len(times) // 2],
        f"{what}, 99 of 100": times[len(times) * 99 // 100],
        "memory of a serving worker (MB)": memory / 1e6,
    }


def load(port: int, request: bytes, clients: int, seconds: float) -> list[float]:
    """How long each request took, sorted; every client asks again once it is answered."""
    clock, poll, times = time.perf_counter, select.epoll(), []
    socks: dict[int, list[Any]] = {}
    for _ in range(clients):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(sock.fileno(), select.EPOLLIN)
        socks[sock.fileno()] = [sock, clock(), b""]
        sock.sendall(request)
    end = clock() + seconds
    while (now := clock()) < end:
        for fd, _ in poll.poll(1.0):
            entry = socks[fd]
            entry[2] += entry[0].recv(65536)
            if _is_whole(entry[2]):
                now = clock()
                times.append(now - entry[1])
                entry[1:] = now, b""
                entry[0].sendall(request)
    for sock, _, _ in socks.values():
        sock.close()
    poll.close()
    return sorted(times)


def _is_whole(answer: bytes) -> bool:
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"the server said {head[:200]!r}")  # it loads its model
    return len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])


def _wait(port: int, request: bytes) -> None:
    """Until it answers."""
    until = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError):
            load(port, request, 1, 0.1)
            return
        if time.monotonic() > until:
            raise SystemExit(f"nothing answers at port {port}")
        time.sleep(0.1)


def _children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _processor(process: int) -> float:
    """Seconds that a process has computed for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(process: int) -> int:
    """Bytes of a process; of those that several share, its part."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
