"""Kubernetes: one pod of an Indexed Job for each node.

Its number is the pod's index, which Kubernetes tells. How many there are, where they meet and the
job's name stand in the manifest under torchrun's names (``PET_NNODES``, ``PET_RDZV_ENDPOINT``,
``PET_RDZV_ID``; Kubeflow's Trainer sets the same ones), which are options already. The token is a
Secret that the pod mounts. ``launcher/submit/manifest.py`` writes such manifests.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping

from .place import Place, number

ENDS = (
    "by SIGTERM to this process when the pod is to go; the pod is killed "
    "terminationGracePeriodSeconds later"
)
JOIN = 300.0  # seconds for the first pod to begin
INDEX = "JOB_COMPLETION_INDEX"
MEETING = ("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR")


def matches(env: Mapping[str, str]) -> bool:
    """Are we a pod of a job that says how many nodes it has? (Pods of an Indexed Job may also be
    jobs of their own.)"""
    return "KUBERNETES_SERVICE_HOST" in env and INDEX in env and "PET_NNODES" in env


def place(env: Mapping[str, str], wait: Callable[[str], None] | None = None) -> Place:
    """Our place in the job. ``wait`` returns when a name can be looked up: the first pod has its
    own when it has begun, which may be after us."""
    index, nodes = number(env, INDEX), env.get("PET_NNODES", "")
    most = nodes.rpartition(":")[2]
    meeting = next((env[name] for name in MEETING if env.get(name)), "")
    problems = [
        *([] if index is not None else [f"{INDEX} is not set (spec.completionMode: Indexed)"]),
        *([] if most.isdigit() else [f"PET_NNODES={nodes!r} is no number of nodes"]),
        *([] if meeting or most == "1" else ["PET_RDZV_ENDPOINT is not set"]),
    ]
    if problems:
        raise ValueError(
            f"--cluster kubernetes: {'; '.join(problems)}; "
            "`dtrun submit --to kubernetes --dry-run` prints a manifest that has all of it"
        )
    if index != 0 and meeting:
        (wait or until_known)(meeting)
    return Place(
        cluster="kubernetes",
        num_nodes=int(most),
        first=meeting,
        node_rank=index,
        job=env.get("PET_RDZV_ID", ""),
        ends=ENDS,
        token_file=env.get("DISTTRAIN_TOKEN_FILE", ""),
    )


def until_known(endpoint: str, seconds: float = JOIN) -> None:
    """Wait until the host of ``endpoint`` has an address. Raises ``ValueError`` when it has none in
    time."""
    host, deadline = endpoint.rpartition(":")[0] or endpoint, time.monotonic() + seconds
    while True:
        try:
            socket.getaddrinfo(host, None)
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"--cluster kubernetes: {host} has no address after {seconds:g} s ({error}); "
                    "does the first pod run, and is there a headless Service of the name of the "
                    "pods' subdomain, with publishNotReadyAddresses?"
                ) from None
        time.sleep(1.0)
