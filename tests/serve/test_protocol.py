"""HTTP as bytes: requests in pieces, in a row, wrong ones, and clients that do not go on."""

import json
import os
import socket
import time

import pytest

from support.malformed import GOOD, post, requests
from support.served import Server, waits_for

COUNT = int(os.environ.get("MALFORMED", "1000"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with Server(folder, body=1 << 20, patience=4.0, idle=4.0, connections=40) as served:
        yield served


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def rest(sock) -> bytes:
    """All until the server closes its side."""
    found = b""
    try:
        while part := sock.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def talk(server, data: bytes, end: bool = True) -> bytes:
    with connect(server) as sock:
        try:
            sock.sendall(data)
            if end:
                sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was refused before its end
        return rest(sock)


def good(**more) -> bytes:
    return post({"inputs": [GOOD], **more})


def test_wrong_requests_are_told_so_and_harm_nobody(server) -> None:
    before = server.workers()
    for number, request in enumerate(requests(COUNT)):
        answer = talk(server, request)
        assert answer[:10] == b"HTTP/1.1 4", (number, request[:300], answer[:300])
        assert b'{"error":' in answer
    assert server.workers() == before and not server.events("worker_ended")
    assert server.infer([[1, 2, 3]])[0] == 200


def test_a_request_may_come_in_pieces(server) -> None:
    request = good()
    with connect(server) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for k in range(len(request)):
            sock.sendall(request[k : k + 1])
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")
        body = json.dumps({"inputs": [GOOD]}).encode()
        pieces = b"".join(b"%x\r\n%c\r\n" % (1, c) for c in body) + b"0\r\n\r\n"
        head = post(b"", length=0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        sock.sendall(head + pieces)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


def test_requests_in_a_row_are_answered_in_order(server) -> None:
    row = b"".join(good(id=str(k)) for k in range(50)) + post(b"{", headers=["Connection: close"])
    answers = talk(server, row + good(id="never"), end=False)
    found = [part.partition(b'"')[0] for part in answers.split(b'"id":"')[1:]]
    assert found == [b"%d" % k for k in range(50)]
    assert answers.count(b"HTTP/1.1 200 OK") == 50 and answers.count(b"HTTP/1.1 400") == 1


def test_what_a_client_says_of_the_connection_holds(server) -> None:
    assert b"connection: close" in talk(
        server, good().replace(b"Host", b"Connection: close\r\nHost"), False
    )
    old = good().replace(b"HTTP/1.1", b"HTTP/1.0")
    assert b"connection: close" in talk(server, old, False)
    with connect(server) as sock:
        for _ in range(2):
            sock.sendall(old.replace(b"Host", b"Connection: keep-alive\r\nHost"))
            assert b"connection: keep-alive" in sock.recv(65536)
    head = talk(server, b"HEAD /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"content-length: 13" in head and head.endswith(b"\r\n\r\n")


def test_a_client_may_ask_whether_to_send_its_body(server) -> None:
    head, _, body = good().partition(b"\r\n\r\n")
    with connect(server) as sock:
        sock.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")
    large = post(b"", headers=["Expect: 100-continue"], length=1 << 30)
    assert talk(server, large, end=False).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_who_asks_for_another_protocol_is_answered_in_this_one(server, framing) -> None:
    """Clients of HTTP/2 ask so at first; the body is no request of its own."""
    wish = (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nHost"
    )
    asked = good().replace(b"Host", wish)
    if framing == "chunked":
        head, _, body = asked.partition(b"\r\n\r\n")
        head = head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked")
        asked = head + b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    answers = talk(server, asked * 3 + good())
    assert answers.count(b"HTTP/1.1 200 OK") == answers.count(b"HTTP/1.1 ") == 4
    live = b"GET /v2/health/live HTTP/1.1\r\n" + wish + b": localhost\r\n\r\n"
    assert talk(server, live * 2000).count(b"HTTP/1.1 200 OK") == 2000  # nor nested
    with connect(server) as sock:  # in pieces
        for k in range(0, len(asked), 7):
            sock.sendall(asked[k : k + 7])
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")
    last = good().replace(b"Host", b"Connection: close, Upgrade\r\nUpgrade: websocket\r\nHost")
    assert b"connection: close" in talk(server, last, end=False)
    tunnel = talk(server, b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", end=False)
    assert tunnel.startswith(b"HTTP/1.1 405") and tunnel.count(b"HTTP/1.1 ") == 1


def test_an_address_may_name_the_server(server) -> None:
    port = server.port
    whole = good().replace(b"POST ", b"POST http://localhost:%d" % port)
    assert talk(server, whole).startswith(b"HTTP/1.1 200")
    other = good().replace(b"POST ", b"POST http://elsewhere.example")
    assert talk(server, other).startswith(b"HTTP/1.1 403")  # it stands for Host
    bare = talk(server, b"GET /v2 HTTP/1.1\r\n\r\n")
    assert bare.startswith(b"HTTP/1.1 400") and b"Host" in bare
    assert talk(server, b"GET /v2 HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_codings_that_are_not_undone_are_refused(server) -> None:
    head, _, body = good().partition(b"\r\n\r\n")
    head = head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: gzip, chunked")
    answer = talk(server, head + b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert answer.startswith(b"HTTP/1.1 501") and answer.count(b"HTTP/1.1 ") == 1


def test_a_client_that_does_not_go_on_is_sent_away(server) -> None:
    start = time.monotonic()
    with connect(server) as half, connect(server) as idle, connect(server) as silent:
        half.sendall(good()[:-5])
        idle.sendall(good())
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        assert rest(half).startswith(b"HTTP/1.1 408")
        assert rest(idle) == rest(silent) == b""
    assert time.monotonic() - start > 3.9


def test_connections_over_the_limit_are_refused(server) -> None:
    many = [connect(server) for _ in range(45)]
    try:
        answer = talk(server, good())
        assert answer.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in answer
        many += [connect(server) for _ in range(40)]
        assert rest(many[-1]) == b""  # so many are not told so
    finally:
        for sock in many:
            sock.close()
    waits_for(lambda: talk(server, good()).startswith(b"HTTP/1.1 200"))


def test_a_client_that_leaves_takes_nothing_with_it(server) -> None:
    for _ in range(50):
        with connect(server) as sock:
            sock.sendall(good())
    waits_for(lambda: server.infer([[1, 2, 3]])[0] == 200)  # at the limit of connections till then
    waits_for(lambda: "disttrain_body_bytes 0\n" in server.ask("/metrics")[1])
