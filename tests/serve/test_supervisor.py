"""Processes that are killed, stopped and replaced, while clients ask."""

import contextlib
import os
import signal
import threading

import pytest

from disttrain.errors import ConfigError
from disttrain.serve.supervisor import address_of, listen
from support.served import DIE, Server, waits_for


class Clients:
    """Ask one thing after another until the block ends; ``answers``: (status, scale, version)."""

    def __init__(self, server, count: int = 6) -> None:
        self.server, self.answers, self.errors = server, [], []
        self.going = True
        self.threads = [threading.Thread(target=self.ask) for _ in range(count)]

    def ask(self) -> None:
        with contextlib.closing(self.server.connect()) as connection:
            while self.going:
                try:
                    status, answer = self.server.infer([[1, 1, 1]], connection=connection)
                except OSError as error:
                    self.errors.append(error)
                    return
                scale = answer["outputs"][0]["data"][0] if status == 200 else None
                self.answers.append((status, scale, answer.get("model_version")))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self.going = False
        for thread in self.threads:
            thread.join()

    def count(self, more: int) -> None:
        """Wait for so many more answers."""
        want = len(self.answers) + more
        waits_for(lambda: len(self.answers) >= want or self.errors)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("served"), {"scale": 2.0, "sleep": 0.002}) as served:
        yield served


def replaced(server, number: int) -> int:
    """Send a signal to a worker and wait until another one is there. Which it was."""
    before = server.workers()
    os.kill(before[0], number)
    waits_for(lambda: len(set(server.workers()) - set(before)) == 1)
    return before[0]


def version(server) -> int:
    return int(server.infer([[1, 1, 1]])[1]["model_version"])


def test_a_killed_worker_takes_its_running_requests_with_it_and_no_more(server) -> None:
    with Clients(server) as clients:
        for _ in range(3):
            clients.count(30)
            replaced(server, signal.SIGKILL)
            clients.count(30)
    statuses = [status for status, _, _ in clients.answers]
    assert not clients.errors and set(statuses) <= {200, 503}
    assert statuses.count(503) <= 3 * len(clients.threads)
    assert {scale for status, scale, _ in clients.answers if status == 200} == {2.0}
    ended = [event["how"] for event in server.events("worker_ended")[-3:]]
    assert ended == ["killed by SIGKILL"] * 3
    assert "disttrain_worker_deaths_total 0" not in server.ask("/metrics")[1]


def test_a_request_that_kills_its_worker_is_told_so(server) -> None:
    for _ in range(3):
        status, answer = server.infer([[DIE, 0, 0]])
        assert status == 503 and "has died" in answer["error"]
        assert server.infer([[1, 1, 1]])[0] == 200


def test_files_are_replaced_without_a_lost_request(server) -> None:
    load, first = "/v2/repository/models/m/load", version(server)
    with Clients(server) as clients:
        clients.count(20)
        server.write({"scale": 3.0, "sleep": 0.002})
        assert server.ask(load, {})[0] == 200
        clients.count(20)
        server.write({"scale": 4.0, "sleep": 0.002})
        server.process.send_signal(signal.SIGHUP)
        waits_for(lambda: version(server) == first + 2)
        clients.count(20)
        server.write({"scale": 5.0})  # nobody says so
        waits_for(lambda: version(server) == first + 3)
        clients.count(20)
        server.write({"kind": "dies"})
        assert server.ask(load, {})[0] == 400
        clients.count(20)
        os.kill(server.workers()[0], signal.SIGKILL)  # the next one has the file of the others
        waits_for(lambda: 'disttrain_workers{state="starting"} 0' in server.ask("/metrics")[1])
        waits_for(lambda: len(server.workers()) == 2)
        clients.count(20)
    assert not clients.errors and {a[0] for a in clients.answers} <= {200, 503}
    assert [a[0] for a in clients.answers].count(503) <= len(clients.threads)  # of the kill
    pairs = {(scale, int(number)) for status, scale, number in clients.answers if status == 200}
    assert pairs == {(2.0 + k, first + k) for k in range(4)}
    server.write({"scale": 2.0, "sleep": 0.002})
    assert server.ask(load, {})[0] == 200


def test_at_the_end_what_is_there_is_answered(tmp_path) -> None:
    with Server(tmp_path, {"sleep": 0.15}, max_batch=1) as server:
        with Clients(server) as clients:
            waits_for(lambda: "disttrain_queue_requests 4" in server.ask("/metrics")[1])
            server.process.send_signal(signal.SIGTERM)
            for thread in clients.threads:
                thread.join()  # their connections end, once each has been answered
        assert server.process.wait(30) == 0
    assert len(clients.errors) == 6  # of the next connection
    assert all(isinstance(error, OSError) for error in clients.errors)
    assert [a[0] for a in clients.answers] == [200] * len(clients.answers)
    assert len(clients.answers) >= 6


def test_a_worker_that_is_stopped_is_replaced(server) -> None:
    stopped = replaced(server, signal.SIGSTOP)
    assert stopped in [event["process"] for event in server.events("stopped_process")]
    assert server.infer([[1, 1, 1]])[0] == 200


def test_a_front_that_is_killed_is_replaced_at_the_same_socket(server) -> None:
    old = server.events("models_ready")[-1]["pid"]
    os.kill(old, signal.SIGKILL)
    waits_for(lambda: server.events("models_ready")[-1]["pid"] != old)
    assert server.infer([[1, 1, 1]])[0] == 200
    assert server.events("front_ended")[-1]["how"] == "killed by SIGKILL"


def test_nothing_is_left_of_a_server_that_is_killed(tmp_path) -> None:
    server = Server(tmp_path, workers=1)
    processes = [*server.workers(), server.events("models_ready")[0]["pid"]]
    server.kill()
    waits_for(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in processes))


def test_models_that_cannot_be_loaded_are_said_at_the_start(tmp_path) -> None:
    with pytest.raises(AssertionError, match="a worker died while it loaded"):
        Server(tmp_path, {"kind": "dies"})


def test_a_port_that_is_taken_is_named() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        address = address_of(listener, True)
        port = listener.getsockname()[1]
        assert address == f"https://127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be had"):
            listen("127.0.0.1", port)
