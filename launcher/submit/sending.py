"""Hand a job over: to sbatch, or to the API server of Kubernetes (the extra ``kubernetes``)."""

from __future__ import annotations

import contextlib
import importlib
import secrets
import subprocess
from typing import Any

from disttrain.errors import LaunchError

from . import manifest
from .job import Job, Kubernetes

_SECONDS = 60.0
TOKEN_SIZE = 32


def to_slurm(script: str) -> int:
    """Submit a batch script; sbatch says the job's number. Raises ``LaunchError``."""
    try:
        done = subprocess.run(["sbatch"], input=script, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise LaunchError(
            "dtrun submit --to slurm: there is no sbatch here; run it where Slurm's commands are, "
            "or write the script with --dry-run and submit it there"
        ) from None
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"dtrun submit --to slurm: sbatch has not answered in {_SECONDS:g} s; see `sinfo`"
        ) from None
    return done.returncode


def to_kubernetes(job: Job, kubernetes: Kubernetes, objects: list[manifest.Object]) -> int:
    """Create the Job, then what belongs to it and goes with it; pods wait for their Secret
    meanwhile. Nothing stays where one cannot be created. Raises ``LaunchError``."""
    try:
        api = importlib.import_module("kubernetes")
        unreachable = importlib.import_module("urllib3").exceptions.HTTPError
    except ImportError:
        raise LaunchError(
            "dtrun submit --to kubernetes needs the package kubernetes: pip install "
            "'disttrain[kubernetes]'; or write the manifest with --dry-run, for kubectl"
        ) from None
    service, indexed_job = objects
    try:
        with _client(api) as client:
            jobs, core = api.client.BatchV1Api(client), api.client.CoreV1Api(client)
            where = {"namespace": kubernetes.namespace, "_request_timeout": _SECONDS}
            made = jobs.create_namespaced_job(body=indexed_job, **where)
            owner = {
                "apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": made.metadata.uid,
            }  # fmt: skip
            token = manifest.secret(job, kubernetes, secrets.token_bytes(TOKEN_SIZE))
            try:
                core.create_namespaced_service(body=_owned(service, owner), **where)
                core.create_namespaced_secret(body=_owned(token, owner), **where)
            except BaseException:
                with contextlib.suppress(api.client.ApiException):
                    jobs.delete_namespaced_job(job.name, propagation_policy="Background", **where)
                raise
    except (api.client.ApiException, api.config.ConfigException, OSError, unreachable) as error:
        raise LaunchError(f"dtrun submit --to kubernetes: {_said(error)}") from None
    print(f"job {job.name} in namespace {kubernetes.namespace}: {job.nodes[1]} pods")
    print(f"see it with: kubectl logs -f -n {kubernetes.namespace} job/{job.name} --all-pods")
    return 0


def _client(api: Any) -> Any:
    """Who we are and where the server is: as kubectl finds it, else as a pod does."""
    try:
        api.config.load_kube_config()
    except api.config.ConfigException:
        api.config.load_incluster_config()
    return api.client.ApiClient()


def _owned(found: manifest.Object, owner: dict[str, str]) -> manifest.Object:
    return {**found, "metadata": {**found["metadata"], "ownerReferences": [owner]}}


def _said(error: BaseException) -> str:
    """What a server has answered, without the headers around it."""
    status = getattr(error, "status", None)
    body = getattr(error, "body", None)
    return f"{status} {getattr(error, 'reason', '')}: {body}" if status else str(error)
