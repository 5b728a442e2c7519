"""Messages between the processes of a server."""

import os

from disttrain.serve.messages import pair


def test_messages_arrive_whole_in_order_and_with_descriptors() -> None:
    one, other = pair()
    reader, writer = os.pipe()
    assert one.send({"a": 1}) and one.send({"b": "x" * 50_000}, [reader])
    assert other.receive() == {"a": 1}
    message, (fd,) = other.receive_with_fds()
    assert len(message["b"]) == 50_000
    os.write(writer, b"y")
    assert os.read(fd, 1) == b"y"
    for n in (reader, writer, fd):
        os.close(n)
    one.close()
    other.close()


def test_an_end_that_is_closed_is_told_by_both_verbs() -> None:
    one, other = pair()
    one.close()
    assert other.receive() is None and other.receive_with_fds() == (None, [])
    assert other.send({}) is False
    other.close()
