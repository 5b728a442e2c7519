"""Requests for inference that are wrong in some way, each as the bytes of a connection.

The model takes ``x``: FP32 [batch, 3]. Who gets one must be told so (4xx).
"""

import json
import random

PATH = "/v2/models/m/infer"
GOOD = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}
ODD = [
    None,
    True,
    -1,
    1e400,
    10**30,
    "",
    "z",
    [],
    {},
    [[]],
    [None],
    ["1"],
    0.5,
    "\ud800",
    float("nan"),
]


def post(body, headers=(), path=PATH, method="POST", length=None, version="1.1") -> bytes:
    """A request as bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = len(data) if length is None else length
    lines = [
        f"{method} {path} HTTP/{version}",
        "Host: localhost",
        f"Content-Length: {size}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def _http(rng: random.Random) -> bytes:
    body = json.dumps({"inputs": [GOOD]}).encode()
    good = post(body)
    chunked = [
        b"POST /v2/models/m/infer HTTP/1.1",
        b"Host: localhost",
        b"Transfer-Encoding: chunked",
        b"",
        b"",
    ]
    return rng.choice(
        [
            lambda: bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200))) + b"\r\n\r\n",
            lambda: good[: rng.randrange(1, len(good) - 1)],
            lambda: post(
                body, length=rng.choice(["-1", "1e3", "0x10", "9" * 30, "", "+5", "5, 6"])
            ),
            lambda: post(body, headers=["Content-Length: 5"]),
            lambda: post(body, headers=["Transfer-Encoding: chunked"]),
            lambda: post(body, headers=["Transfer-Encoding: gzip, chunked, x"]),
            lambda: (
                b"\r\n".join(chunked)
                + rng.choice(
                    [
                        b"zz\r\n",
                        b"-5\r\nabcde\r\n",
                        b"5\r\nabcdefgh\r\n0\r\n\r\n",
                        b"f" * 20 + b"\r\n",
                    ]
                )
            ),
            lambda: post(body, headers=["no colon"]),
            lambda: post(body, headers=[" folded: x"]),
            lambda: post(body, headers=["a b: c"]),
            lambda: post(body, headers=[f"x-{k}: y" for k in range(200)]),
            lambda: post(body, headers=["x: " + "y" * 70000]),
            lambda: post(body, path="/" + "p" * 70000),
            lambda: post(body, version=rng.choice(["9.9", "1.x", "", "2.0"])),
            lambda: post(
                body, method=rng.choice(["GET", "PUT", "DELETE", "PATCH", "BREW", "post"])
            ),
            lambda: post(
                body, headers=["Connection: Upgrade", "Upgrade: websocket"], path="/nowhere"
            ),
            lambda: post(body, headers=["Content-Encoding: gzip"]),
            lambda: post(body, headers=["Host: elsewhere.example"]),
            lambda: post(
                body,
                headers=["X-Request-Timeout: " + rng.choice(["-1", "nan", "inf", "soon", "0", ""])],
            ),
            lambda: post(
                body,
                path=rng.choice(
                    [
                        "/v2/models/n/infer",
                        "/v2/models/m/versions/77/infer",
                        "/v2/models//infer",
                        "/v2/models/m%00/infer",
                        "/../../etc/passwd",
                        "*",
                        "/v2/models/m/infer/",
                    ]
                ),
            ),
            lambda: post(b"x" * (1 << 21)),
            lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
            lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ]
    )()


def _json(rng: random.Random) -> bytes:
    text = json.dumps({"inputs": [GOOD], "id": "a"})
    at = rng.randrange(1, len(text) - 1)
    return post(
        rng.choice(
            [
                lambda: text[:at].encode(),
                lambda: text.encode() + b"}",
                lambda: text[:at].encode() + b"\xff\xfe" + text[at:].encode(),
                lambda: b"[" * rng.choice([40, 1000, 100000]),
                lambda: b'{"inputs":' + b"[" * 5000 + b"]" * 5000 + b"}",
                lambda: b'{"a":' * 3000,
                lambda: rng.choice([b"", b"null", b"3", b'"x"', b"[]", b"NaN", b"\x00", b"{}"]),
                lambda: b'{"inputs": ' + b"9" * 6000 + b"}",
            ]
        )()
    )


def _protocol(rng: random.Random) -> bytes:
    entry, asked = dict(GOOD), {}
    change = rng.randrange(9)
    if change == 0:
        del entry[rng.choice(list(entry))]
    elif change == 1:
        entry["shape"] = rng.choice(
            [
                [3, 3],
                [2],
                [2, 3, 1],
                [0, 3],
                [-2, 3],
                [2, 4],
                [1 << 62, 3],
                [1 << 39, 1 << 39],
                [True, 3],
                [2.0, 3],
                "23",
                None,
                [[2, 3]],
                [2] * 1000,
            ]
        )
    elif change == 2:
        entry["data"] = rng.choice(
            [
                [1] * 5,
                [1] * 7,
                [[1, 2, 3], [4, 5]],
                [[1, 2], [3, 4], [5, 6]],
                ["a"] * 6,
                [None] * 6,
                [1, 2, 3, 4, 5, True],
                [1e60] * 6,
                [10**400] * 6,
                {},
                "123456",
                [{}] * 6,
                [[[1, 2, 3], [4, 5, 6]]],
                [],
            ]
        )
    elif change == 3:
        entry["datatype"] = rng.choice(["FP64", "INT64", "BYTES", "fp32", "", "object", 3])
    elif change == 4:
        entry["name"] = rng.choice(["X", "", "y", "x" * 10000, "\x00", 7])
    elif change == 5:
        entry["parameters"] = rng.choice(
            [
                3,
                [],
                {"binary_data_size": 24},
                {"binary_data_size": -1},
                {"shared_memory_region": "a"},
                "x",
            ]
        )
    elif change == 6:
        asked["outputs"] = rng.choice(
            [
                {},
                3,
                "y",
                [3],
                [{}],
                [{"name": "z"}],
                [{"name": "y"}, {"name": "y"}],
                [{"name": "y", "parameters": {"classification": 3}}],
                [{"name": "y", "parameters": {"binary_data": 1}}],
            ]
        )
    elif change == 7:
        asked["parameters"] = rng.choice(
            [
                3,
                [],
                {"timeout": -1},
                {"timeout": "x"},
                {"binary_data_output": "yes"},
                {"timeout": 1.5},
            ]
        )
    else:
        asked["id"] = rng.choice([3, [], "x" * 5000, {"a": 1}])
    asked["inputs"] = (
        rng.choice([[entry, entry], [entry, dict(entry, name="w")], [], 3, {}, None, [3], "x"])
        if rng.random() < 0.1
        else [entry]
    )
    return post(asked)


def _binary(rng: random.Random) -> bytes:
    entry = {k: v for k, v in GOOD.items() if k != "data"}
    size, tail, head = 24, bytes(24), None
    change = rng.randrange(7)
    if change == 0:
        size = rng.choice([23, 25, 0, -1, 1 << 70, 24.0, "24", None, True])
    elif change == 1:
        tail = bytes(rng.choice([0, 23, 25, 100]))
    elif change == 2:
        head = rng.choice(["-1", "x", "", "99999999", "1e2", "0", "5", "9" * 40])
    elif change == 3:
        entry["data"] = GOOD["data"]
    elif change == 4:
        entry["shape"] = [1 << 38, 3]
    elif change == 5:
        return post({"inputs": [dict(entry, parameters={"binary_data_size": 24})]})
    else:
        entry["datatype"] = "FP16"
    entry["parameters"] = {"binary_data_size": size}
    text = json.dumps({"inputs": [entry]}).encode()
    return post(
        text + tail,
        headers=[f"Inference-Header-Content-Length: {len(text) if head is None else head}"],
    )


def _mutated(rng: random.Random) -> bytes:
    """A value in the request is another one."""
    asked = {"inputs": [dict(GOOD)]}
    place = rng.choice(["name", "datatype", "shape", "data"])
    asked["inputs"][0][place] = rng.choice(ODD)
    return post(asked)


def requests(count: int, seed: int = 0):
    """So many, all of them wrong."""
    rng = random.Random(seed)
    kinds = [_http, _json, _protocol, _protocol, _binary, _mutated]
    for _ in range(count):
        yield rng.choice(kinds)(rng)
