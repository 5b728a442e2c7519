"""launch() in a notebook's kernel: functions of a cell, what their ranks print, the stop button."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRST = """
import os, sys, threading, time
from disttrain_launcher import launch

class Thing:
    def __init__(self, number):
        self.number = number

assert threading.active_count() > 1

def body(more):
    print("on", os.environ["RANK"])
    return Thing(int(os.environ["RANK"]) + more)

print([thing.number for thing in launch(body, 2, args=(5,))])
"""
STOPPED = """
def wait():
    print("waits", flush=True)
    time.sleep(60)

launch(wait, 1)
"""
LEFT = """
import subprocess
print(launch(os.getpid, 1) != [os.getpid()], subprocess.run(["ps", "--ppid", str(os.getpid()),
      "-o", "args="], capture_output=True, text=True).stdout.count("python"))
"""


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    client = pytest.importorskip("jupyter_client", reason="no jupyter_client and ipykernel here")
    pytest.importorskip("ipykernel", reason="no ipykernel here")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    manager, kernel = client.manager.start_new_kernel(kernel_name="python3", stderr=-3)
    yield manager, kernel
    kernel.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.filterwarnings("default")
def test_cells(kernel):
    manager, client = kernel

    def run(code, when=None):
        """The texts of a cell, and the name of the error that ended it."""
        mine = client.execute(code)
        text, error = "", ""
        while True:
            message = client.get_iopub_msg(timeout=30)
            content = message["content"]
            if message["parent_header"].get("msg_id") != mine:
                continue
            text += content["text"] if message["msg_type"] == "stream" else ""
            if message["msg_type"] == "error":
                error = f"{content['ename']}: {content['evalue']}"
            if when is not None and when in text:
                when = manager.interrupt_kernel()
            if content.get("execution_state") == "idle":
                return text, error

    text, error = run(FIRST)
    assert error == ""
    assert {"[5, 6]", "[rank 0] on 0", "[rank 1] on 1"} <= set(text.splitlines())
    text, error = run(STOPPED, "waits")
    assert text.startswith("waits\n") and error == "KeyboardInterrupt: "
    text, error = run(LEFT)
    assert "True 0\n" in text and error == ""
    text, error = run("launch(lambda: {}[os.environ['RANK']], 1)")
    assert error.startswith("LaunchError: launch(<lambda>): rank 0 failed: KeyError: '0'")
    assert "KeyError: '0'" in text
