"""Manifests as Kubernetes' own package reads them, and what is created when a job is submitted.

No cluster is here: a server of this file's answers in the place of the API server. What Kubernetes
does with the objects was not seen.
"""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from disttrain_launcher.clusters import kubernetes as cluster
from disttrain_launcher.command import dispatch
from disttrain_launcher.submit import manifest, yaml_text
from disttrain_launcher.submit.job import Job, Kubernetes

pytestmark = pytest.mark.cluster
JOB = Job("train", ("train.py", "--on", "no"), ("--max-restarts", "3"), (2, 4), 8, 16, "64Gi")
WHERE = Kubernetes("registry.example/train:1", "research", 29401, (("runs", "/runs"),))


@pytest.fixture
def client():
    return pytest.importorskip("kubernetes", reason="the extra `kubernetes` is missing").client


def read_back(client, found):
    """The object as the package's model, which refuses what has a wrong type or lacks a field;
    and what the model knows nothing of."""
    kind = {"Job": "V1Job", "Service": "V1Service", "Secret": "V1Secret"}[found["kind"]]
    api = client.ApiClient()
    model = api.deserialize(json.dumps(found), kind, "application/json")
    assert api.sanitize_for_serialization(model) == found, "something was not understood"
    return model


def test_every_object_is_one_of_kubernetes(client):
    objects = [*manifest.objects(JOB, WHERE), manifest.secret(JOB, WHERE, b"s" * 32)]
    service, job, secret = (read_back(client, found) for found in objects)
    assert job.spec.completion_mode == "Indexed" and job.spec.completions == 4
    assert job.spec.template.spec.subdomain == service.metadata.name == "train"
    assert service.spec.cluster_ip == "None" and service.spec.publish_not_ready_addresses
    volume = job.spec.template.spec.volumes[0]
    assert volume.secret.secret_name == secret.metadata.name
    assert base64.b64decode(secret.data["token"]) == b"s" * 32


def test_a_pod_of_the_manifest_finds_its_place(client):
    """From the Job's own variables to the answers, as the node of index 3 gets them."""
    job = read_back(client, manifest.objects(JOB, WHERE)[1])
    container = job.spec.template.spec.containers[0]
    env = {variable.name: variable.value for variable in container.env}
    env |= {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "3"}
    assert cluster.matches(env)
    place = cluster.place(env)
    assert (place.node_rank, place.num_nodes, place.first) == (3, 4, "train-0.train:29401")
    mounts = {mount.name: mount.mount_path for mount in container.volume_mounts}
    assert place.token_file == f"{mounts['token']}/token"
    assert container.command == ["dtrun", "--max-restarts", "3", "train.py", "--on", "no"]


@pytest.mark.parametrize("path", ["kubernetes.yaml"])
def test_the_template_is_read_by_others_as_it_was_meant(path, client):
    yaml = pytest.importorskip("yaml", reason="it comes with the extra `kubernetes`")
    text = (Path(__file__).parents[3] / "configs" / "cluster" / path).read_text()
    objects = list(yaml.safe_load_all(text))
    assert [found["kind"] for found in objects] == ["Service", "Job"]
    for found in objects:
        read_back(client, found)
    assert list(yaml.safe_load_all(yaml_text.documents(objects))) == objects


class Server:
    """Answers as the API server does where all is well; ``refuses`` one kind of object."""

    def __init__(self, refuses=""):
        self.asked, asked = [], None
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked.append(("POST", self.path, body))
                if body["kind"] == refuses:
                    return self.answer(409, {"kind": "Status", "message": "it exists"})
                body["metadata"]["uid"] = "11111111-2222"
                return self.answer(201, body)

            def do_DELETE(self):
                asked.append(("DELETE", self.path, None))
                self.answer(200, {"kind": "Status"})

            def answer(self, status, body):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def config(self, folder):
        """A kubeconfig that names this server."""
        path = folder / "kubeconfig"
        path.write_text(yaml_text.documents([{
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": f"http://127.0.0.1:{self.http.server_address[1]}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }]))  # fmt: skip
        return str(path)


SUBMIT = ["submit", "--to", "kubernetes", "--image", "i:1", "--nnodes", "2", "train.py"]


@pytest.fixture
def kubeconfig(client, monkeypatch):
    """Points the package, which reads the variable when it is loaded, at a file."""
    from kubernetes.config import kube_config

    def point(path):
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", path)

    return point


def test_submitting_creates_all_and_the_job_owns_it(kubeconfig, tmp_path, capsys):
    with Server() as server:
        kubeconfig(server.config(tmp_path))
        assert dispatch.main(SUBMIT) == 0
    (_, jobs, job), (_, _, service), (_, _, secret) = server.asked
    assert jobs == "/apis/batch/v1/namespaces/default/jobs" and job["kind"] == "Job"
    for owned in (service, secret):
        assert owned["metadata"]["ownerReferences"][0]["uid"] == "11111111-2222"
    token = base64.b64decode(secret["data"]["token"])
    assert len(token) == 32
    assert secret["data"]["token"] not in json.dumps(job) + json.dumps(service)
    said = capsys.readouterr().out
    assert "2 pods" in said and secret["data"]["token"] not in said


def test_nothing_stays_where_something_cannot_be_created(kubeconfig, tmp_path, capsys):
    with Server(refuses="Secret") as server:
        kubeconfig(server.config(tmp_path))
        assert dispatch.main(SUBMIT) == 2
    method, path, _ = server.asked[-1]
    assert (method, path.partition("?")[0].rpartition("/")[2]) == ("DELETE", "train")
    assert "409" in capsys.readouterr().err


def test_no_server_is_said(kubeconfig, tmp_path, capsys, monkeypatch):
    server = Server()
    kubeconfig(server.config(tmp_path))
    server.http.server_close()
    assert dispatch.main(SUBMIT) == 2
    assert "dtrun submit --to kubernetes" in capsys.readouterr().err
    kubeconfig(str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert dispatch.main(SUBMIT) == 2
