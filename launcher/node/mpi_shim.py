"""What mpiexec starts in a rank's place: hands what MPI has told it to the rank, and waits for it.

So ranks are children of the agent as ever, and all that it does for them (outputs, exit codes,
signals, reports) stays as it is; mpiexec only tells them of each other. Run by its path, with
nothing but the standard library, since mpiexec starts one for each rank.
"""

from __future__ import annotations

import json
import os
import socket
import sys

PREFIXES = ("PMI", "MPI", "OMPI_", "PRTE_", "HYDI_", "HYDRA_")
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def main(name: str) -> int:
    """Connect to the rank that waits at the abstract socket ``name`` and its number."""
    told = {k: v for k, v in os.environ.items() if k.startswith(PREFIXES)}
    rank = next((told[name] for name in RANKS if name in told), None)
    if rank is None:
        sys.stderr.write(f"dtrun: mpiexec has told no rank ({', '.join(RANKS)})\n")
        return 1
    fds = [int(told["PMI_FD"])] if "PMI_FD" in told else []
    data = json.dumps(told).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(f"\0{name}-{rank}")
        socket.send_fds(link, [len(data).to_bytes(4, "little")], fds)
        link.sendall(data)
        for fd in fds:
            os.close(fd)
        link.recv(1)  # until the rank has ended
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
