"""Handing a job over: to sbatch, and to a stand-in for Kubernetes' package."""

from __future__ import annotations

import contextlib
import subprocess
from types import SimpleNamespace

import pytest

from disttrain.errors import LaunchError
from disttrain_launcher.submit import manifest, sending
from disttrain_launcher.submit.job import Job, Kubernetes

pytestmark = pytest.mark.simulated

JOB, WHERE = Job("train", ("t.py",), nodes=(1, 3)), Kubernetes("image", "room")


def test_a_script_goes_to_sbatch(monkeypatch):
    asked = []

    def run(words, **more):
        asked.append((words, more["input"]))
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(sending.subprocess, "run", run)
    assert sending.to_slurm("#!/bin/sh\n") == 3 and asked == [(["sbatch"], "#!/bin/sh\n")]


@pytest.mark.parametrize(
    "error, told",
    [
        (FileNotFoundError(), "there is no sbatch here"),
        (subprocess.TimeoutExpired("sbatch", 60), "has not answered in 60 s"),
    ],
)
def test_no_sbatch(monkeypatch, error, told):
    def run(*args, **more):
        raise error

    monkeypatch.setattr(sending.subprocess, "run", run)
    with pytest.raises(LaunchError, match=f"dtrun submit --to slurm: .*{told}"):
        sending.to_slurm("")


class ApiException(Exception):
    def __init__(self, status=403, reason="Forbidden", body="no rights"):
        self.status, self.reason, self.body = status, reason, body


class ConfigException(Exception):
    pass


class Cluster:
    """Kubernetes' package, of which ``fails`` refuses; notes what it is asked."""

    def __init__(self, fails="", outside=True):
        self.asked, self.fails = [], fails
        asked = self.asked

        class Api:
            def __init__(self, client):
                assert client == "client"

            def __getattr__(self, name):
                def ask(*args, **more):
                    asked.append((name, args, more))
                    if name == fails:
                        raise ApiException()
                    return SimpleNamespace(metadata=SimpleNamespace(uid="u-1"))

                return ask

        def load_kube_config():
            asked.append(("kube", (), {}))
            if not outside:
                raise ConfigException("no file")

        self.client = SimpleNamespace(
            BatchV1Api=Api, CoreV1Api=Api, ApiException=ApiException,
            ApiClient=lambda: contextlib.nullcontext("client"),
        )  # fmt: skip
        self.config = SimpleNamespace(
            load_kube_config=load_kube_config,
            load_incluster_config=lambda: asked.append(("pod", (), {})),
            ConfigException=ConfigException,
        )

    def names(self):
        return [name for name, _, _ in self.asked]


def sent(monkeypatch, cluster):
    modules = {
        "kubernetes": cluster,
        "urllib3": SimpleNamespace(exceptions=SimpleNamespace(HTTPError=TimeoutError)),
    }
    monkeypatch.setattr(sending.importlib, "import_module", modules.__getitem__)
    return sending.to_kubernetes(JOB, WHERE, manifest.objects(JOB, WHERE))


def test_all_that_belongs_to_a_job_goes_with_it(monkeypatch, capsys):
    cluster = Cluster()
    assert sent(monkeypatch, cluster) == 0
    assert cluster.names() == [
        "kube", "create_namespaced_job", "create_namespaced_service", "create_namespaced_secret",
    ]  # fmt: skip
    for name, _, more in cluster.asked[1:]:
        assert more["namespace"] == "room" and more["_request_timeout"] > 0
        owners = more["body"]["metadata"].get("ownerReferences")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-1"}
        assert owners == (None if name.endswith("_job") else [owner]), name
    said = capsys.readouterr().out
    assert "job train in namespace room: 3 pods" in said and "kubectl logs -f -n room" in said


def test_each_job_has_a_secret_of_its_own(monkeypatch):
    bodies = []
    for _ in range(2):
        cluster = Cluster()
        sent(monkeypatch, cluster)
        bodies.append(cluster.asked[-1][2]["body"])
    assert bodies[0] != bodies[1]


@pytest.mark.parametrize("fails", ["create_namespaced_service", "create_namespaced_secret"])
def test_nothing_stays_where_one_cannot_be_created(monkeypatch, fails):
    cluster = Cluster(fails)
    with pytest.raises(LaunchError, match="--to kubernetes: 403 Forbidden: no rights"):
        sent(monkeypatch, cluster)
    name, args, more = cluster.asked[-1]
    assert name == "delete_namespaced_job" and args == ("train",)
    assert more["propagation_policy"] == "Background" and more["namespace"] == "room"


def test_a_job_that_is_refused_leaves_nothing_to_be_deleted(monkeypatch):
    cluster = Cluster("create_namespaced_job")
    with pytest.raises(LaunchError, match="403"):
        sent(monkeypatch, cluster)
    assert cluster.names() == ["kube", "create_namespaced_job"]


def test_a_pod_finds_its_own_server(monkeypatch):
    cluster = Cluster(outside=False)
    sent(monkeypatch, cluster)
    assert cluster.names()[:2] == ["kube", "pod"]


def test_a_server_that_does_not_answer(monkeypatch):
    cluster = Cluster()

    def silent():
        raise TimeoutError("timed out")

    cluster.config.load_kube_config = silent
    with pytest.raises(LaunchError, match="--to kubernetes: timed out"):
        sent(monkeypatch, cluster)


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(sending.importlib, "import_module", missing)
    with pytest.raises(LaunchError, match=r"pip install 'disttrain\[kubernetes\]'"):
        sending.to_kubernetes(JOB, WHERE, manifest.objects(JOB, WHERE))
