"""Run by its path, on every node of an MPI job: rank 0 tells all where it is, and a number of the
job; prints both as JSON."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys

from mpi4py import MPI

FIRST_PORT, NUM_PORTS = 15000, 15000  # below those that systems give out of themselves


def free_port(start: int) -> int:
    """The first port from there on that nobody listens at."""
    for port in range(start, FIRST_PORT + NUM_PORTS):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("", port))
            except OSError:
                continue
            return port
    return 0


def main() -> int:
    """Meet, tell, and leave MPI again."""
    told = None
    if MPI.COMM_WORLD.Get_rank() == 0:
        job = secrets.token_hex(16)
        host = os.environ.get("PMI_HOSTNAME") or socket.gethostname()
        port = free_port(FIRST_PORT + int(job, 16) % (NUM_PORTS // 2))
        told = json.dumps([f"{host}:{port}", job])
    print(MPI.COMM_WORLD.bcast(told, root=0))
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
