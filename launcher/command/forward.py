"""What a job writes, told where the caller's ``sys.stdout`` leads: into the cell of a notebook, the
buffer of a test. Knows pipes and text streams; not what writes."""

from __future__ import annotations

import codecs
import os
import select
from typing import Any

_CHUNK = 1 << 16


def leads_to(stream: Any, fd: int) -> bool:
    """Does what is written to ``stream`` go to this descriptor, as a child's text does, too?"""
    try:
        return stream.fileno() == fd
    except (AttributeError, OSError, ValueError):
        return False


class Forward:
    """A pipe, whose text goes to ``stream`` whenever ``pump`` is called."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.reader, self.writer = os.pipe()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def pump(self) -> bool:
        """Pass on what has come, of which there is some; False at the end."""
        data = os.read(self.reader, _CHUNK)
        text = self._decode(data, final=not data)
        if text and self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):  # it was closed: nobody wants to hear
                self._stream = None
        return bool(data)

    def started(self) -> None:
        """Who writes has its end; drop ours."""
        os.close(self.writer)

    def finish(self) -> None:
        """Pass on what is left; who still holds the other end is not waited for."""
        poll = select.poll()
        poll.register(self.reader, select.POLLIN)
        while poll.poll(0) and self.pump():
            continue
        os.close(self.reader)
