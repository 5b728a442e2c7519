"""What planners of programs are made of, under the names that programs know."""

from __future__ import annotations

from ...core import Size
from .default_planner import read_items, write_items
from .metadata import ChunkStorageMetadata, MetadataIndex, TensorStorageMetadata
from .planner import LoadItemType, ReadItem
from .state.boxes import meetings


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: list[ChunkStorageMetadata]
) -> list[ReadItem]:
    """The reads that fill the pieces ``local_chunks`` of the tensor ``fqn``."""
    wanted = [(tuple(c.offsets), tuple(c.sizes)) for c in local_chunks]
    stored = [(tuple(c.offsets), tuple(c.sizes)) for c in checkpoint_md.chunks]
    return [
        ReadItem(
            LoadItemType.TENSOR,
            MetadataIndex(fqn, wanted[m.wanted][0], m.wanted), Size(m.in_wanted),
            MetadataIndex(fqn, stored[m.stored][0], m.stored), Size(m.in_stored),
            Size(m.sizes),
        )
        for m in meetings(wanted, stored)
    ]  # fmt: skip


_create_write_items = write_items
_create_read_items = read_items
