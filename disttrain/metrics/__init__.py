"""What a run tells the world: JSON lines, TensorBoard event files, a progress bar."""

from .jsonl import JsonLines, read_jsonl
from .progress import Progress
from .tensorboard import EventWriter

__all__ = ["EventWriter", "JsonLines", "Progress", "read_jsonl"]
