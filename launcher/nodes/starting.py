"""Starts the keeper of a job on several nodes, and waits for it at the end.

``front`` calls it before it starts the agent. This module and what it needs are loaded for such
jobs alone.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shlex
import signal
import socket
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from disttrain import settings
from disttrain.comm.job.worker_env import TLS, tls_wanted
from disttrain.watch.nodes import create

from ..clusters.tokens import token_of
from ..node.channel import Channel, pair
from ..node.orders import Orders
from ..node.report import say
from ..options.command_line import Options
from ..options.rendezvous import Rendezvous
from ..plan.job import Plan
from ..plan.membership import COMMAND, Node
from ..registry.opening import CannotOpen, Opened, opened
from . import boxes
from .keeper import MIN_RANKS, REPLACES, RUN_ID, Keeper
from .watching import gathered

_NOTICE = 3.0  # seconds of silence before people are told what is waited for
_END = 2.0  # ... for a keeper to end that waits for nothing


@dataclass
class Kept:
    """The keeper, as front and agent have it. ``name``: of this node."""

    pid: int
    name: str
    sock: socket.socket
    rendezvous: Rendezvous
    nodes_fd: int = -1
    boxes_fd: int = -1
    log_dir: str | None = None

    def orders(self) -> Orders:
        """The agent's end."""
        fds = self.nodes_fd, self.boxes_fd
        return Orders(Channel(self.sock), self.rendezvous.fence, self.name, *fds)

    def wait(self) -> None:
        """The agent has ended: wait until the others know; on the first node, tell what the ranks
        of all have done last."""
        self._wait()
        if self.boxes_fd >= 0:
            for line in boxes.told(gathered(self.boxes_fd), self.log_dir):
                say(line)
            os.close(self.boxes_fd)
            os.close(self.nodes_fd)
            self.boxes_fd = -1

    def _wait(self) -> None:
        deadline = time.monotonic() + self.rendezvous.close_timeout + self.rendezvous.ttl + _END
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                self.kill()
                os.waitpid(self.pid, 0)
                return
            time.sleep(0.005)

    def kill(self) -> None:
        """It need not wait any longer."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def token_for(options: Options) -> bytes | None:
    """The job's token, from a file that is named or from what the cluster tells."""
    env = dict(settings.environment())
    if options.token_file:
        env[settings.TOKEN_FILE.name] = options.token_file
    return token_of(options.place, env)


def token_file_for_ranks(options: Options, token: bytes | None) -> str:
    """What ranks find as DISTTRAIN_TOKEN_FILE: the file of the user's, or a descriptor that they
    inherit."""
    given = options.token_file or settings.TOKEN_FILE.text()
    lasting = given and not given.startswith("fd:") and not options.place.token_file
    if token is None or lasting:
        return os.path.abspath(given) if given else ""
    fd = os.memfd_create("disttrain-token", os.MFD_CLOEXEC)
    os.write(fd, token)
    os.set_inheritable(fd, True)
    return f"fd:{fd}"


def _not_encrypted(r: Rendezvous, token: bytes | None, env: Mapping[str, str]) -> list[str]:
    """What to tell who has asked for encryption between ranks of several machines."""
    if not tls_wanted(env) or token is None:
        return []
    plain = ["what ranks put into their store (addresses, keys of their programs)"]
    if r.backend != "etcd":
        if not r.tls:
            plain.append(
                "what the nodes' launchers say (names, addresses, errors of ranks; --rdzv-conf "
                "tls=1 does that)"
            )
    elif dict(r.conf).get("protocol") != "https":
        plain.append("what the nodes' launchers say to etcd (--rdzv-conf protocol=https does that)")
    return [
        f"{TLS}=1 encrypts what ranks send each other between nodes; not encrypted: "
        f"{'; '.join(plain)}"
    ]


def start_keeper(plan: Plan, r: Rendezvous, token: bytes | None) -> Kept:
    """Fork the keeper, before anything large is loaded and while signals are held back."""
    for hint in (*r.hints, *_not_encrypted(r, token, settings.environment())):
        say(hint)
    name = f"{os.uname().nodename}:{os.getpid()}"
    ours, its = pair()
    nodes_fd, boxes_fd = create(), os.memfd_create("disttrain-boxes", os.MFD_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ours.close()
            os.setpgid(0, 0)  # what a terminal sends goes to the agent, which says what is to be
            _keep(plan, r, token, name, Channel(its), nodes_fd, boxes_fd)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    its.close()
    return Kept(pid, name, ours, r, nodes_fd, boxes_fd, plan.log_dir)


def _keep(
    plan: Plan, r: Rendezvous, token: bytes | None, name: str, channel: Channel, nodes_fd: int,
    boxes_fd: int,
) -> None:  # fmt: skip
    """The keeper's life."""
    noticed = 0.0

    def waiting(seconds: float, last: str) -> bool:
        nonlocal noticed
        channel.receive()
        if seconds - noticed > (_NOTICE if not noticed else 30.0):
            noticed = seconds
            what = "etcd" if r.backend == "etcd" else "the first node"
            channel.send("say", text=f"waiting for {what} at {r.endpoint} ({last})")
        return channel.open

    try:
        found = opened(r, token, waiting)
    except CannotOpen as error:
        channel.send("end", code=error.code, why=str(error), result={})
        while channel.open:
            channel.receive()
            time.sleep(0.02)
        return
    if found is not None:
        node = _node(plan, r, name, found)
        Keeper(
            found.registry, node, r, plan.max_restarts, channel, found.hosts, nodes_fd=nodes_fd,
            boxes_fd=boxes_fd,
        ).run()  # fmt: skip


def _node(plan: Plan, r: Rendezvous, name: str, found: Opened) -> Node:
    nodes = str(r.min_nodes) if r.min_nodes == r.max_nodes else f"{r.min_nodes}:{r.max_nodes}"
    terms = {
        RUN_ID: r.run_id,
        "the version of disttrain": importlib.metadata.version("disttrain"),
        "--nnodes": nodes,
        "--spares": str(r.spares),
        MIN_RANKS: str(plan.min_ranks),
        "--max-restarts": str(plan.max_restarts),
        "--on-term": plan.on_term,
        f"{TLS} (TLS between ranks)": str(int(tls_wanted(settings.environment()))),
    }
    if plan.replace_ranks:
        terms[REPLACES] = "given"
    if r.same_command:
        kind = ["-m"] if plan.module else ["--no-python"] if plan.no_python else []
        words = [*kind, os.path.basename(plan.program[0]), *plan.program[1:]]
        terms[COMMAND] = shlex.join(words)
    return Node(
        name, plan.num_ranks, found.address, plan.master_port, r.node_rank,
        0 if found.hosts else 1, terms, role=plan.role, job=plan.job,
    )  # fmt: skip
