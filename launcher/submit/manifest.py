"""What Kubernetes is given: an Indexed Job, a headless Service and a Secret. Pure: a job to data.

A pod is a node; its index is its number, and the name of the first one is where all meet. The
Service gives pods names, also while they are not ready yet; the Secret holds the job's token and is
mounted as a file. Pods that Kubernetes takes away (pre-emption, a drained machine) are replaced and
do not count as failures; a command line that cannot be understood ends the job at once.
"""

from __future__ import annotations

import base64
from typing import Any

from disttrain import settings

from ..clusters.kubernetes import UID
from .job import Job, Kubernetes

TOKEN_DIR = "/etc/disttrain"
GPU = "nvidia.com/gpu"
USAGE_ERROR = 2
_UID_OF_JOB = "metadata.labels['batch.kubernetes.io/controller-uid']"  # since Kubernetes 1.27
Object = dict[str, Any]


def objects(job: Job, kubernetes: Kubernetes) -> list[Object]:
    """The Service and the Job. The Secret is made by ``secret``, since it is no text to keep."""
    return [_service(job, kubernetes), _job(job, kubernetes)]


def secret(job: Job, kubernetes: Kubernetes, token: bytes) -> Object:
    """The job's token."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**_metadata(job, kubernetes), "name": secret_name(job)},
        "type": "Opaque",
        "immutable": True,
        "data": {"token": base64.b64encode(token).decode()},
    }


def secret_name(job: Job) -> str:
    """The name of the job's Secret."""
    return f"{job.name}-token"


def _metadata(job: Job, kubernetes: Kubernetes) -> Object:
    labels = {"app.kubernetes.io/name": job.name, "app.kubernetes.io/managed-by": "dtrun"}
    return {"name": job.name, "namespace": kubernetes.namespace, "labels": labels}


def _service(job: Job, kubernetes: Kubernetes) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, kubernetes),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": job.name},
            "ports": [{"name": "rendezvous", "port": kubernetes.port}],
        },
    }


def _job(job: Job, kubernetes: Kubernetes) -> Object:
    pods = job.nodes[1]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(job, kubernetes),
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": pods * job.restarts,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                    {
                        "action": "FailJob",
                        "onExitCodes": {"operator": "In", "values": [USAGE_ERROR]},
                    },
                ]
            },
            "template": {
                "metadata": {"labels": _metadata(job, kubernetes)["labels"]},
                "spec": _pod(job, kubernetes),
            },
        },
    }


def _pod(job: Job, kubernetes: Kubernetes) -> Object:
    volumes: list[Object] = [
        {"name": "token", "secret": {"secretName": secret_name(job), "defaultMode": 0o400}}
    ]
    for number, (claim, _) in enumerate(kubernetes.volumes):
        volumes.append({"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}})
    return {
        "subdomain": job.name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": job.save_time,
        "automountServiceAccountToken": False,
        "containers": [_container(job, kubernetes)],
        "volumes": volumes,
    }


def _container(job: Job, kubernetes: Kubernetes) -> Object:
    fewest, most = job.nodes
    variables = {
        "PET_NNODES": f"{fewest}:{most}" if most > fewest else f"{most}",
        "PET_RDZV_ENDPOINT": f"{job.name}-0.{job.name}:{kubernetes.port}",
        "PET_RDZV_ID": job.name,
        settings.TOKEN_FILE.name: f"{TOKEN_DIR}/token",
    }
    needs = {"cpu": job.cpus, "memory": job.memory, GPU: job.gpus}
    amounts = {name: str(amount) for name, amount in needs.items() if amount}
    limits = {name: amount for name, amount in amounts.items() if name != "cpu"}
    resources = {"requests": amounts, "limits": limits}
    mounts: list[Object] = [{"name": "token", "mountPath": TOKEN_DIR, "readOnly": True}]
    for number, (_, path) in enumerate(kubernetes.volumes):
        mounts.append({"name": f"volume-{number}", "mountPath": path})
    return {
        "name": "dtrun",
        "image": kubernetes.image,
        "command": ["dtrun", *job.flags, *job.program],
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            {"name": UID, "valueFrom": {"fieldRef": {"fieldPath": _UID_OF_JOB}}},
        ],
        "ports": [{"name": "rendezvous", "containerPort": kubernetes.port}],
        "resources": {name: found for name, found in resources.items() if found},
        "volumeMounts": mounts,
    }
