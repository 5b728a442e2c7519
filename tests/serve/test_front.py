"""Who may ask, how requests are joined, and what becomes of those for which there is no time."""

import base64
import contextlib
import json
import threading

import numpy as np
import pytest

from disttrain.serve import front
from disttrain.serve.options import Options
from support.served import BREAK, REFUSE, TELL, Server, waits_for

PATH = "/v2/models/m/infer"


def together(server, rows, headers=None):
    """What as many clients are told that ask at the same time."""
    answers, lock = [], threading.Lock()

    def ask(row) -> None:
        answer = server.infer(row, headers=headers)
        with lock:
            answers.append(answer)

    clients = [threading.Thread(target=ask, args=(row,)) for row in rows]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return answers


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    options = {"workers": 1, "delay": 0.02, "max_batch": 8, "log_requests": True}
    with Server(folder, {"scale": 2.0}, **options) as served:
        yield served


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """One that takes little at a time."""
    options = {"workers": 1, "max_batch": 1, "queue": 2, "held": 100_000}
    with Server(tmp_path_factory.mktemp("narrow"), {"sleep": 0.4}, **options) as served:
        yield served


def test_results_are_those_of_each_client(server) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.integers(-99, 99, (rng.integers(1, 5), 3)).astype(float) for _ in range(40)]
    rows.append(np.ones((20, 3)))  # more than a batch has: it runs alone
    found = {}
    for status, answer in together(server, rows):
        assert status == 200
        y = answer["outputs"][0]
        found.setdefault(tuple(y["data"]), y["shape"])
    assert found == {tuple((2 * row).ravel()): list(row.shape) for row in rows}


def test_requests_that_come_together_run_together(server) -> None:
    with contextlib.closing(server.connect()) as idle:
        idle.connect()  # one who could still ask: so the others wait for the delay
        sizes = [a[1]["outputs"][0]["data"][0] for a in together(server, [[[TELL, 0, 0]]] * 8)]
    assert max(sizes) > 1


def test_an_error_of_one_is_not_that_of_those_beside_it(server) -> None:
    rows = [[[1, 2, 3]], [[REFUSE, 0, 0]], [[BREAK, 0, 0]]] * 4
    told = sorted((status, answer.get("error", "")) for status, answer in together(server, rows))
    wanted = (
        [(200, "")] * 4 + [(400, "x: it is refused")] * 4 + [(500, "OSError: it is broken")] * 4
    )
    assert told == wanted


def test_tensors_in_binary_go_there_and_back(server) -> None:
    x = np.float32([[1, 2, 3]])
    entry = {
        "name": "x",
        "datatype": "FP32",
        "shape": [1, 3],
        "parameters": {"binary_data_size": 12},
    }
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    connection = server.connect()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    connection.request("POST", PATH, text + x.tobytes(), headers)
    answer = connection.getresponse()
    head = int(answer.getheader("Inference-Header-Content-Length"))
    body = answer.read()
    connection.close()
    assert json.loads(body[:head])["outputs"][0]["parameters"] == {"binary_data_size": 12}
    np.testing.assert_array_equal(np.frombuffer(body[head:], np.float32), 2 * x[0])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "attacker.example"}, 403),
        ({"Host": "127.0.0.1.attacker.example"}, 403),
        ({"Host": "localhost:9", "Origin": "http://attacker.example"}, 403),
        ({"Host": "localhost:9", "Origin": "null"}, 403),
        ({"Host": "localhost:9", "Origin": "http://localhost:9"}, 200),
        ({"Host": "[::1]:9"}, 200),
        ({"X-Request-Timeout": "soon"}, 400),
        ({"Content-Encoding": "gzip"}, 415),
    ],
)
def test_pages_of_other_sites_may_not_ask(server, headers, status) -> None:
    assert server.infer([[1, 2, 3]], headers=headers)[0] == status


def test_elsewhere_a_token_is_needed_but_for_probes(tmp_path) -> None:
    token = base64.b64encode(b"0123456789abcdef").decode()
    with Server(tmp_path, workers=1, token=token, host="0.0.0.0") as server:
        right = {"Authorization": f"Bearer {token}"}
        assert server.infer([[1, 2, 3]], headers=right)[0] == 200
        for wrong in (
            {},
            {"Authorization": f"Bearer {token}x"},
            {"Authorization": f"Basic {token}"},
        ):
            assert server.infer([[1, 2, 3]], headers=wrong)[0] == 401
            assert server.ask("/metrics", headers=wrong)[0] == 401
            assert server.ask("/v2/repository/models/m/load", {}, headers=wrong)[0] == 401
        assert server.ask("/v2/health/ready")[0] == 200
        assert token not in server.log.read_text()


def test_too_many_requests_are_sent_away_and_late_ones_told_so(narrow) -> None:
    statuses = sorted(status for status, _ in together(narrow, [[[1, 2, 3]]] * 6))
    assert set(statuses) == {200, 429}
    assert narrow.infer([[1, 2, 3]], headers={"X-Request-Timeout": "0.05"})[0] == 504
    assert narrow.infer([[1, 2, 3]], parameters={"timeout": 50_000})[0] == 504
    waits_for(lambda: 'disttrain_workers{state="ready"} 1' in narrow.ask("/metrics")[1])
    assert narrow.infer([[1, 2, 3]])[0] == 200


def test_bytes_of_all_requests_together_are_limited(narrow) -> None:
    # 60 KB each: two are not here at once.
    statuses = sorted(a[0] for a in together(narrow, [np.ones((5000, 3))] * 4))
    assert set(statuses) == {200, 429}
    assert "disttrain_body_bytes 0\n" in narrow.ask("/metrics")[1]


def test_a_line_for_each_request_where_it_is_asked_for(server) -> None:
    before = len(server.events("request"))
    server.infer([[1, 2, 3]])
    server.infer([[1, 2]])
    waits_for(lambda: len(server.events("request")) == before + 2)
    first, second = server.events("request")[before:]
    assert (first["model"], first["status"], first["peer"]) == ("m", 200, "127.0.0.1")
    assert first["ms"] >= 0 and second["status"] == 400 and "shape" in second["error"]


@pytest.mark.parametrize(
    ("limits", "raised", "found"),
    [
        ((1 << 20, 1 << 20), [], 1000),
        ((256, 1 << 20), [(1112, 1 << 20)], 1000),
        ((256, front.resource.RLIM_INFINITY), [(1112, front.resource.RLIM_INFINITY)], 1000),
        ((256, 512), [(512, 512)], 400),
        ((64, 64), [(64, 64)], 32),
    ],
)
def test_there_are_files_for_all_connections(monkeypatch, capfd, limits, raised, found) -> None:
    told: list = []
    monkeypatch.setattr(front.resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(front.resource, "setrlimit", lambda which, new: told.append(new))
    options = Options({"m": "m.dtp"}, workers=1, connections=1000)
    assert front._room_for(options) == found and told == raised
    assert ("few_files" in capfd.readouterr().err) == (found < 1000)
