"""The way of a backward pass over streams and devices.

Each operation of it runs on the stream, and with the device as the current one, that its forward
had (as PyTorch's do): what it saved lies there, and is given back there. The pass is one line of
work all the same: what comes later in it, and after it on any stream that it has used, waits on the
device for what came before. Knows no node; the host waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .array import DeviceArray
from .platform import Platform, Stream, sided

T = TypeVar("T")


class Course:
    """Of one thread, on ``platforms``; it begins and ends where the thread's work goes."""

    def __init__(self, platforms: list[Platform]) -> None:
        self.devices = {platform: platform.current() for platform in platforms}
        self.homes: dict[tuple[Platform, int], Stream] = {}
        self.used: dict[tuple[Platform, int], list[Stream]] = {}  # the last one is the current one

    def __enter__(self) -> Course:
        return self

    def follow(self, node: Any, g: object) -> None:
        """Go where ``node`` is to be run, whose results have the gradients ``g``."""
        array = _on_device(g)
        if array is None or array.platform not in self.devices:
            return
        platform, index = array.platform, array.index
        if platform.current() != index:
            platform.use(index)
        if node.on_device:
            self._go(platform, index, node.stream or platform.default_stream(index))

    def _go(self, platform: Platform, index: int, stream: Stream) -> None:
        key = platform, index
        line = self.used.get(key)
        if line is None:
            self.homes[key] = now = platform.current_stream(index)
            line = self.used[key] = [now]
        if line[-1] == stream:
            return
        stream.wait_event(_after(platform, line[-1]))
        platform.go_on(stream)
        if stream in line:
            line.remove(stream)
        line.append(stream)

    def __exit__(self, *exc: object) -> None:
        for (platform, index), line in self.used.items():
            if len(line) > 1:
                end = _after(platform, line[-1])
                for stream in line[:-1]:
                    stream.wait_event(end)
                platform.go_on(self.homes[platform, index])
        for platform, index in self.devices.items():
            platform.use(index)


def kept(fn: Callable[[], T]) -> Callable[[], T]:
    """``fn``, to be called on another thread, with the streams and devices of this one."""
    states = [
        (p, p.current(), [p.current_stream(i) for i in range(p.count())]) for p in sided()
    ]  # fmt: skip

    def there() -> T:
        for platform, index, streams in states:
            for stream in streams:
                platform.go_on(stream)
            platform.use(index)
        return fn()

    return there


def _after(platform: Platform, stream: Stream) -> Any:
    event = platform.event()
    event.record(stream)
    return event


def _on_device(g: object) -> DeviceArray | None:
    """The array of the first gradient of ``g`` (a Tensor, an array, or several) on a device."""
    for one in g if g.__class__ in (tuple, list) else (g,):
        array = one if one.__class__ is DeviceArray else getattr(one, "__dict__", {}).get("array")
        if array.__class__ is DeviceArray:
            return array
    return None
