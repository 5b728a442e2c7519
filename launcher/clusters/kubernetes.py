"""Kubernetes: one pod of an Indexed Job for each node.

Its number is the pod's index, which Kubernetes tells. How many there are, where they meet and the
job's name stand in the manifest under torchrun's names (``PET_NNODES``, ``PET_RDZV_ENDPOINT``,
``PET_RDZV_ID``; Kubeflow's Trainer sets the same ones), which are options already. The token is a
Secret that the pod mounts. ``launcher/submit/manifest.py`` writes such manifests.
"""

from __future__ import annotations

from collections.abc import Mapping

from .placement import Place, number

ENDS = (
    "by SIGTERM to this process when the pod is to go; the pod is killed "
    "terminationGracePeriodSeconds later"
)
JOIN = 300.0  # seconds for the first pod to begin: before that, its name is not known
INDEX = "JOB_COMPLETION_INDEX"
UID = "DISTTRAIN_JOB_UID"  # the Job's, which its pods have when they are started anew, too
MEETING = ("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR")


def matches(env: Mapping[str, str]) -> bool:
    """Are we a pod of a job that says how many nodes it has? (Pods of an Indexed Job may also be
    jobs of their own.)"""
    return "KUBERNETES_SERVICE_HOST" in env and INDEX in env and "PET_NNODES" in env


def place(env: Mapping[str, str]) -> Place:
    """Our place in the job."""
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
    return Place(
        cluster="kubernetes",
        num_nodes=int(most),
        first=meeting,
        node_rank=index,
        job=env.get("PET_RDZV_ID", ""),
        name_timeout=JOIN,
        lasting=f"kubernetes-{env[UID]}" if env.get(UID) else "",
        ends=ENDS,
        token_file=env.get("DISTTRAIN_TOKEN_FILE", ""),
    )
