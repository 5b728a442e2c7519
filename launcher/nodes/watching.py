"""What the nodes of a job tell each other for people: how ranks do, and black boxes at the end.

Each keeper publishes, once a second, a few numbers of each of its ranks; the first node compares
them, and names who is slower than all others of the job. The rows of ``disttrain top`` are told
while somebody looks, on whichever node. Nothing here decides anything of the job.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping

from disttrain.watch import nodes as shown
from disttrain.watch import stragglers

from ..node.channel import Channel, Message
from ..plan.generation import Generation
from ..plan.membership import RUNNING, Document
from ..registry import Registry

WANTED, SEEN, ROWS, BOX = "wanted/", "seen/", "rows/", "box/"
PART = 256 << 10  # bytes of a black box that travel at once
MOST_BYTES = 32 << 20  # of the black boxes of all nodes, packed
KEPT = 120.0  # seconds for which boxes lie in the registry
_EVERY, _LOOK_EVERY = 1.0, 0.5  # seconds between comparing; between showing
_LENGTHS = struct.Struct("<II")


class Exchange:
    """One keeper's part. ``nodes_fd``: memory that who looks reads (``disttrain.watch.nodes``);
    ``boxes_fd``: where the agent puts the black box, and ``gather`` those of all nodes."""

    def __init__(
        self,
        registry: Registry,
        channel: Channel,
        nodes_fd: int = -1,
        boxes_fd: int = -1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry, self.channel, self.clock = registry, channel, clock
        self.nodes_fd, self.boxes_fd = nodes_fd, boxes_fd
        self._told: dict[str, bytes] = {}  # of our ranks, not published yet
        self._box = 0, 0  # the generation of the black box, and its size
        self._asks = ""  # the entry by which we ask the others for rows
        self._watched = False  # as the agent knows it
        self._next_look = self._next_judging = 0.0
        self._judge = 0, stragglers.Judge()  # of a generation

    @property
    def has_box(self) -> bool:
        """Has the agent left the black box of its ranks?"""
        return self._box[1] > 0

    def hear(self, message: Message) -> bool:
        """What the agent says; was it for us?"""
        kind = message["kind"]
        if kind == "box":
            self._box = message["number"], message["size"]
        elif kind + "/" in (SEEN, ROWS):
            told = {key: value for key, value in message.items() if key != "kind"}
            self._told[kind + "/"] = json.dumps(told).encode()
        else:
            return False
        return True

    def step(
        self, me: str, d: Document | None, entries: Mapping[str, bytes], still: bool = False
    ) -> None:
        """Publish and show what there is. ``me``: this node's id; ``entries``: as last read;
        ``still``: a rank is in the debugger, so nobody is slow."""
        now = self.clock()
        self._pass_on_wishes(now, me, entries)
        if d is None or d.phase != RUNNING or me not in d.members:
            return
        while self._told:
            kind, data = self._told.popitem()
            self.registry.publish(kind + me, data)
        if self._asks and now >= self._next_look:
            self._next_look = now + _LOOK_EVERY
            self._show(d)
        if d.members[0] == me and len(d.members) > 1 and now >= self._next_judging:
            self._next_judging = now + _EVERY
            self._compare(d, still)

    def _pass_on_wishes(self, now: float, me: str, entries: Mapping[str, bytes]) -> None:
        """Ask the others while somebody looks here; tell the agent whether anybody does."""
        if self.nodes_fd >= 0 and shown.is_wanted(self.nodes_fd, now):
            if self._asks != WANTED + me or self._asks not in entries:
                self._asks = WANTED + me
                self.registry.put_leased(self._asks, b"1")
        elif self._asks:
            self.registry.delete(self._asks)
            self._asks = ""
        watched = any(key.startswith(WANTED) for key in entries)
        if watched != self._watched:
            self.channel.send("watched", on=watched)
            self._watched = watched

    def _show(self, d: Document) -> None:
        found = self.registry.published(ROWS)
        told = [found[member] for member in d.members if member in found]
        shown.put(self.nodes_fd, b"[" + b",".join(told) + b"]")

    # --- stragglers -----------------------------------------------------------------------------

    def _compare(self, d: Document, still: bool) -> None:
        """Name the rank of the whole job that is slower than the others, once."""
        number, judge = self._judge
        if number != d.number:
            judge = stragglers.Judge()
            self._judge = d.number, judge
        if still:
            judge.reset()
            return
        seen: dict[int, stragglers.Seen] = {}
        where = ""
        for told in self.registry.published(SEEN).values():
            ranks, inside = _seen(told, d.number)
            seen |= ranks
            where = where or inside
        if len(seen) != sum(node["count"] for node in d.nodes):
            return
        found = judge.look(time.monotonic_ns(), seen)
        if found is not None:
            counts = tuple(node["count"] for node in d.nodes)
            named = Generation(counts, nodes=tuple(node["name"] for node in d.nodes))
            self.channel.send("say", text=found.text(where, named.name_of(found.rank)))

    # --- black boxes ----------------------------------------------------------------------------

    def give_box(self, me: str, d: Document | None) -> None:
        """Publish the black box that the agent has left, if it is of the job's last ranks."""
        number, size = self._box
        if d is None or d.number != number or not size or me not in d.members:
            return
        place = d.members.index(me)
        if size > MOST_BYTES // len(d.members):
            text = f"black box of {size >> 20} MB: too large to be gathered; it stays on this node"
            self.channel.send("say", text=text)
            return
        parts = -(-size // PART)
        for part in range(parts):
            data = os.pread(self.boxes_fd, PART, part * PART)
            self.registry.publish(f"{BOX}{number}.{place}.{part}.{parts}", data, KEPT)
        os.ftruncate(self.boxes_fd, 0)

    def keep_box(self, me: str, d: Document | None) -> None:
        """Nobody can be told of the black box: this node tells of it alone."""
        number, size = self._box
        if not size or d is None or d.number != number or me not in d.members:
            return
        data = os.pread(self.boxes_fd, size, 0)
        os.ftruncate(self.boxes_fd, 0)
        os.pwrite(self.boxes_fd, _LENGTHS.pack(d.members.index(me), size) + data, 0)

    def gather(self, d: Document | None) -> None:
        """Put the black boxes of all nodes where ``gathered`` finds them."""
        os.ftruncate(self.boxes_fd, 0)
        if d is None:
            return
        found: dict[int, dict[int, bytes]] = {}
        whole: dict[int, int] = {}
        for key, data in self.registry.published(f"{BOX}{d.number}.").items():
            place, part, parts = map(int, key.split("."))
            found.setdefault(place, {})[part] = data
            whole[place] = parts
        at = 0
        for place, parts_of in sorted(found.items()):
            if len(parts_of) == whole[place]:
                data = b"".join(parts_of[part] for part in range(whole[place]))
                at += os.pwrite(self.boxes_fd, _LENGTHS.pack(place, len(data)) + data, at)


def gathered(fd: int) -> Iterator[tuple[int, bytes]]:
    """The place of each node whose black box was gathered, and the box, packed."""
    at, size = 0, os.fstat(fd).st_size
    while at + _LENGTHS.size <= size:
        place, length = _LENGTHS.unpack(os.pread(fd, _LENGTHS.size, at))
        yield place, os.pread(fd, length, at + _LENGTHS.size)
        at += _LENGTHS.size + length


def _seen(told: bytes, number: int) -> tuple[dict[int, stragglers.Seen], str]:
    """What a node tells of its ranks in generation ``number``, and what one of them is in."""
    try:
        what = json.loads(told)
        if what["number"] != number:
            return {}, ""
        at = int(what["at"])
        ranks = {
            int(rank): dataclasses.replace(stragglers.Seen(*map(int, counts[:6])), at=at)
            for rank, counts in what["ranks"].items()
        }
        return ranks, str(what["in"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, ""
