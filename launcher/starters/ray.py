"""Ray: ``dtrun --cluster ray[://HOST:PORT] --nnodes 2 train.py`` starts one agent on each machine.

Ray supplies machines (its autoscaler starts them), tells which are lost and gives others; the job's
own membership does the rest, and knows of a lost machine before Ray does. The fewest nodes are one
placement group, on a machine each; what comes beyond them is asked for one by one. The job ends
with this process, and this process with the job.

``ray_slots`` decides (pure), ``ray_agent`` runs on the machines, this file speaks to Ray.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from disttrain.errors import LaunchError

from ..options import forwarding
from .ray_agent import Agent, Meeting
from .ray_slots import Slots, bundle, num_ranks

TTL = 2.0  # seconds of a lease
PATIENCE = 0.5  # seconds between two looks at agents that say nothing
NOTICE = 5.0  # seconds without machines before people are told what is waited for
TOKEN_SIZE = 32
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_OURS = ("help", "program", "nnodes", "nproc_per_node", "cluster", "node_rank", "dry_run",
         "rdzv_endpoint", "rdzv_backend", "rdzv_conf", "rdzv_id", "master_addr", "master_port",
         "local_addr", "token_file")  # fmt: skip
_REFUSED = ("simulate", "fake", "standalone", "hostfile", "backend", "node_rank", "rdzv_endpoint")


@dataclasses.dataclass(frozen=True)
class Job:
    """What is asked for."""

    address: str  # of the cluster; "auto": the one that this machine belongs to
    nodes: tuple[int, int]
    nproc: str
    flags: tuple[str, ...]
    program: tuple[str, ...]
    run_id: str
    conf: str = ""
    dry_run: bool = False

    def words(self, endpoint: str, ranks: int) -> list[str]:
        """The command line of an agent, without what its machine alone knows."""
        fewest, most = self.nodes
        conf = ",".join(filter(None, (self.conf, "is_host=0")))
        return [
            "--cluster", "local", "--nnodes", f"{fewest}:{most}", "--nproc-per-node", str(ranks),
            "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-conf", conf,
            "--rdzv-id", self.run_id, *self.flags, *self.program,
        ]  # fmt: skip


def main(argv: Sequence[str], cluster: str) -> int:
    """Run the job of a command line on that cluster; its exit code."""
    job = _parse(argv, cluster)
    out = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):  # where Ray reports what it has lost
            return Driver(job, _connect(job), out).run()
    except LaunchError as error:
        sys.stderr.write(f"dtrun: {error}\n")
        return 2


def _parse(argv: Sequence[str], cluster: str) -> Job:
    p, of_agent = forwarding.parser(_OURS)
    given = p.parse_args(list(argv))
    for name in _REFUSED:
        if getattr(given, name) != p.get_default(name):
            p.error(f"--{name.replace('_', '-')}: with --cluster ray, Ray says where agents run")
    return Job(
        address="auto" if cluster == "ray" else cluster,
        nodes=forwarding.nodes(p, given.nnodes),
        nproc=given.nproc_per_node,
        flags=tuple(forwarding.words(of_agent, given)),
        program=tuple(forwarding.program(p, given)),
        run_id=given.rdzv_id if given.rdzv_id != "none" else f"ray-{secrets.token_hex(6)}",
        conf=given.rdzv_conf,
        dry_run=given.dry_run,
    )


def _connect(job: Job) -> Any:
    """Ray, connected to its cluster. Raises ``LaunchError``."""
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise LaunchError(
            "--cluster ray: there is no Ray here; pip install 'disttrain[ray]', as on all machines "
            "of the cluster"
        ) from None
    # Who is no part of the cluster sends the folder it is in; others have it at the same path.
    far = job.address.startswith("ray://")
    environment = {"working_dir": os.getcwd()} if far else None
    try:
        ray.init(
            address=job.address, runtime_env=environment, log_to_driver=False,
            logging_level="ERROR", namespace=job.run_id,
        )  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise LaunchError(
            f"--cluster {job.address}: {str(error).splitlines()[0]}; is a cluster there "
            "(`ray status`)? --cluster ray://HOST:10001 names one elsewhere, RAY_ADDRESS, too"
        ) from None
    return ray


@dataclasses.dataclass
class Machine:
    """A slot's part of Ray: where its agent goes, the agent, and what was asked of it last."""

    group: Any
    index: int
    actor: Any = None
    asked: Any = None


class Driver:
    """Runs one job."""

    def __init__(self, job: Job, ray: Any, out: TextIO) -> None:
        self.job, self.ray, self.out = job, ray, out
        self.slots = Slots(job.nodes[1])
        self.machines: list[Machine] = []
        self.groups: list[Any] = []
        self.token = secrets.token_bytes(TOKEN_SIZE)
        self.signalled: list[int] = []
        self.passed_on = 0  # of these

    def run(self) -> int:
        """To the end; the exit code."""
        try:
            machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
            try:
                needs = bundle(self.job.nproc, self.job.nodes[0], machines)
            except ValueError as error:
                raise LaunchError(str(error)) from None
            ranks = num_ranks(self.job.nproc, needs)
            if self.job.dry_run:
                fewest, most = self.job.nodes
                words = " ".join(["dtrun", *self.job.words("HEAD:PORT", ranks)])
                self.out.write(f"on each of {fewest} to {most} machines: {needs}\n{words}\n")
                return 0
            for number in SIGNALS:
                signal.signal(number, lambda which, _: self.signalled.append(which))
            self._ask_for_machines(needs)
            self._follow(self._meet(), needs, ranks)
            return 128 + self.signalled[0] if self.signalled else self.slots.code
        finally:
            self.ray.shutdown()  # every actor of ours ends with us

    def _ask_for_machines(self, needs: dict[str, float]) -> None:
        """The fewest nodes are there together or not at all, each on a machine of its own."""
        create = importlib.import_module("ray.util.placement_group").placement_group
        fewest, most = self.job.nodes
        together = create([needs] * fewest, strategy="STRICT_SPREAD")
        self.machines = [Machine(together, n) for n in range(fewest)]
        self.groups = [together]
        for _ in range(fewest, most):
            self.groups.append(create([needs], strategy="STRICT_PACK"))
            self.machines.append(Machine(self.groups[-1], 0))

    def _meet(self) -> str:
        """Start the rendezvous, and say where it is."""
        where = {"node:__internal_head__": 0.001}
        self.meeting = (
            self.ray.remote(Meeting).options(num_cpus=0, resources=where).remote(self.token, TTL)
        )
        return str(self.ray.get(self.meeting.endpoint.remote()))

    def _follow(self, endpoint: str, needs: dict[str, float], ranks: int) -> None:
        """Start agents, show what they say, and start others where they are lost."""
        begun = said = time.monotonic()
        while not self.slots.over and not (self.signalled and not self.slots.running):
            for number in self.slots.wanted:
                if not self.signalled:
                    self._start(number, endpoint, needs, ranks)
            waiting = {m.asked: n for n, m in enumerate(self.machines) if m.asked is not None}
            if waiting:
                ready, _ = self.ray.wait(list(waiting), timeout=PATIENCE)
                for answer in ready:
                    self._answered(waiting[answer], answer)
            else:
                time.sleep(PATIENCE / 5)
            self._pass_signals_on()
            now = time.monotonic()
            if not self.slots.running and now - said > NOTICE:
                said = now + 5 * NOTICE
                sys.stderr.write(
                    f"dtrun: waiting for {self.job.nodes[0]} machines with {needs} each, for "
                    f"{now - begun:.0f} s (`ray status`)\n"
                )
        if self.slots.given_up:
            raise LaunchError(f"--cluster ray: {self.slots.given_up}")

    def _start(self, number: int, endpoint: str, needs: dict[str, float], ranks: int) -> None:
        """Start an agent where its bundle is, if it is anywhere by now."""
        machine = self.machines[number]
        if not self._is_placed(machine):
            return
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        machine.actor = (
            self.ray.remote(Agent)
            .options(
                num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0.0), max_concurrency=4,
                scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(
                    machine.group, placement_group_bundle_index=machine.index
                ),
            )
            .remote(self.token)
        )  # fmt: skip
        words = self.job.words(endpoint, ranks)
        machine.actor.start.remote(words, os.getcwd(), f"{needs['CPU']:g}")
        machine.asked = machine.actor.read.remote(PATIENCE)
        self.slots.started(number, time.monotonic())

    def _is_placed(self, machine: Machine) -> bool:
        """Has Ray a machine for it that lives?"""
        table = importlib.import_module("ray.util.placement_group").placement_group_table
        found = table(machine.group)
        node = found.get("bundles_to_node_id", {}).get(machine.index)
        if found.get("state") == "PENDING" or not node:
            return False
        return any(each["Alive"] and each["NodeID"] == node for each in self.ray.nodes())

    def _answered(self, number: int, answer: object) -> None:
        machine = self.machines[number]
        try:
            pieces, code = self.ray.get(answer)
        except self.ray.exceptions.ActorUnavailableError:
            machine.asked = machine.actor.read.remote(PATIENCE)  # or it is lost: Ray will say so
            time.sleep(PATIENCE / 5)
            return
        except self.ray.exceptions.RayActorError:
            if not self.signalled:
                sys.stderr.write(f"dtrun: node {number} of the job is lost for Ray\n")
            self.ray.kill(machine.actor)
            machine.actor = machine.asked = None
            self.slots.lost(number, time.monotonic())
            return
        for which, data in pieces:
            stream = self.out if which == 1 else sys.stderr
            stream.buffer.write(data)
            stream.flush()
        if code is None:
            machine.asked = machine.actor.read.remote(PATIENCE)
            return
        machine.asked = None
        self.slots.ended(number, code)

    def _pass_signals_on(self) -> None:
        """The first signal goes to the agents; the second ends them."""
        while len(self.signalled) > self.passed_on:
            which = self.signalled[self.passed_on]
            self.passed_on += 1
            for number in self.slots.running:
                actor = self.machines[number].actor
                if self.passed_on > 1 and which == signal.SIGINT:
                    self.ray.kill(actor)
                else:
                    actor.signal.remote(which)
