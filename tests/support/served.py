"""A server of small models for tests, as a process: ``python -m support.served FILE {options}``.

A model's file is JSON that says what it computes: ``y = scale * x`` for rows of three numbers,
after ``sleep`` seconds; ``kind`` says what else is to happen.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

import numpy as np

from disttrain.errors import ShapeError
from disttrain.serve.models import Model, tried
from disttrain.serve.options import Options
from disttrain.serve.signature import Signature, Spec
from disttrain.serve.supervisor import Supervisor

ROOT = Path(__file__).parents[2]
DIE, REFUSE, BREAK, TELL = -1e9, -2e9, -3e9, -4e9  # numbers at which something happens


def opened(name: str, path: str) -> Model:
    said = json.loads(Path(path).read_text())
    if said.get("kind") == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    row = (("batch", 3),)
    signature = Signature(
        (Spec("x", "float32", *row),), (Spec("y", "float32", *row),), {"batch": (1, None)}
    )

    def run(arrays):
        x = arrays["x"]
        time.sleep(said.get("sleep", 0.0))
        if (x == DIE).any():
            os.kill(os.getpid(), signal.SIGKILL)
        if (x == REFUSE).any():
            raise ShapeError("x: it is refused")
        if (x == BREAK).any():
            raise OSError("it is broken")
        if (x == TELL).any():
            return {"y": np.full_like(x, len(x))}
        if said.get("kind") == "mixes":
            return {"y": x - x.mean(0)}
        return {"y": x * np.float32(said.get("scale", 1.0))}

    return tried(name, Model(signature, run))


class Server:
    """The process; ends with the block."""

    def __init__(self, folder: Path, model: dict | None = None, **options) -> None:
        self.file = folder / "m.json"
        self.write(model or {"scale": 2.0})
        options = {"workers": 2, "port": 0, "models": {"m": str(self.file)}, **options}
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
        self.log = folder / "log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "support.served", json.dumps(options)],
                stdout=subprocess.PIPE, stderr=log, text=True, env=env, cwd=ROOT,
            )  # fmt: skip
        self.port = int(self.process.stdout.readline().rpartition(":")[2] or 0)
        if not self.port:
            self.kill()
            raise AssertionError(self.log.read_text())

    def write(self, model: dict) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(model))
        new.replace(self.file)

    def __enter__(self):
        return self

    def __exit__(self, *exc) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()

    def connect(self, timeout: float = 30.0) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, path: str, body=None, method=None, headers=None, connection=None):
        """(status, JSON or text) of an answer."""
        with contextlib.ExitStack() as stack:
            if connection is None:
                connection = self.connect()
                stack.callback(connection.close)
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(
                method or ("POST" if body is not None else "GET"), path, data, headers or {}
            )
            answer = connection.getresponse()
            text = answer.read()
            if answer.getheader("content-type") == "application/json":
                return answer.status, json.loads(text)
            return answer.status, text.decode()

    def infer(self, rows, headers=None, connection=None, **more):
        """(status, answer) for rows of three numbers."""
        rows = np.asarray(rows, float)
        entry = {
            "name": "x",
            "datatype": "FP32",
            "shape": list(rows.shape),
            "data": rows.ravel().tolist(),
        }
        return self.ask(
            "/v2/models/m/infer",
            {"inputs": [entry], **more},
            headers=headers,
            connection=connection,
        )

    def events(self, name: str) -> list[dict]:
        found = [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]
        return [event for event in found if event["event"] == name]

    def workers(self) -> list[int]:
        """Their process ids."""
        text = self.ask("/metrics")[1]
        lines = [x for x in text.splitlines() if x.startswith("disttrain_worker_private_bytes{")]
        return [int(line.split('"')[1]) for line in lines]


def waits_for(ready, seconds: float = 30.0) -> None:
    """Until something is so."""
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.01)


def main() -> int:
    said = json.loads(sys.argv[1])
    said["token"] = said.get("token", "").encode()
    ready = functools.partial(print, flush=True)
    return Supervisor(Options(**said), opened, "0", ready).run()


if __name__ == "__main__":
    sys.exit(main())
