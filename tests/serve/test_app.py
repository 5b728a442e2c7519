"""What is asked rarely: health, metadata, metrics, loads."""

import pytest

from support.served import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("served")) as served:
        yield served


def test_health_and_metadata(server) -> None:
    assert server.ask("/v2/health/live") == (200, {"live": True})
    assert server.ask("/v2/health/ready") == (200, {"ready": True})
    assert server.ask("/v2/models/m/ready") == (200, {"name": "m", "ready": True})
    assert server.ask("/v2/models/m/versions/1/ready")[0] == 200
    told = server.ask("/v2")[1]
    assert told["name"] == "disttrain" and "binary_tensor_data" in told["extensions"]
    status, about = server.ask("/v2/models/m")
    assert status == 200 and server.ask("/v2/models/m/versions/1") == (200, about)
    assert about["versions"] == ["1"]
    assert about["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert about["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    index = [{"name": "m", "version": "1", "state": "READY", "reason": ""}]
    assert server.ask("/v2/repository/index", {}) == (200, index)


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 404),
        ("/v2/models/n", "GET", 404),
        ("/v2/models/m/versions/9", "GET", 404),
        ("/v2/models/n/ready", "GET", 404),
        ("/v2/repository/models/n/load", "POST", 404),
        ("/v2/repository/models/m/load", "GET", 405),
        ("/v2/health/live", "POST", 405),
        ("/v2/models/m/infer", "GET", 405),
        ("/v2/models/m/", "GET", 404),
        ("/%ff%00", "GET", 404),
    ],
)
def test_what_is_not_there_is_told_as_json(server, path, method, status) -> None:
    found, answer = server.ask(path, method=method)
    assert found == status and list(answer) == ["error"]


def test_metrics_count_what_was_asked(server) -> None:
    assert server.infer([[1, 2, 3]])[0] == 200
    assert server.infer([[1, 2]])[0] == 400
    text = server.ask("/metrics")[1]
    assert 'disttrain_requests_total{model="m",code="200"}' in text
    assert 'disttrain_requests_total{model="m",code="400"}' in text
    assert 'disttrain_workers{state="ready"} 2' in text
    assert 'disttrain_batch_rows_count{model="m"}' in text
    assert len(server.workers()) == 2


def test_a_load_tells_what_came_of_it(server) -> None:
    load = "/v2/repository/models/m/load"
    assert server.ask(load, {}) == (200, {"name": "m", "version": "1"})  # the file is the same
    server.write({"scale": 3.0})
    assert server.ask(load, {}) == (200, {"name": "m", "version": "2"})
    assert server.infer([[1, 2, 3]])[1]["outputs"][0]["data"] == [3, 6, 9]
    server.file.write_text("{")
    status, answer = server.ask(load, {})
    assert status == 400 and "m stays what it was: JSONDecodeError" in answer["error"]
    assert server.infer([[1, 2, 3]])[1]["model_version"] == "2"
    assert server.ask("/v2/models/m/versions/1")[0] == 404
