"""What a run tells the world: JSON lines, TensorBoard event files, a progress bar, steps."""

from .jsonl import JsonLines, read_jsonl
from .progress import Progress
from .steps import step
from .summary_writer import SummaryWriter
from .tensorboard import EventWriter, FileWriter, RecordWriter

__outward__ = ("disttrain.metrics", "")

__all__ = [
    "EventWriter", "FileWriter", "JsonLines", "Progress", "RecordWriter", "SummaryWriter",
    "read_jsonl", "step",
]  # fmt: skip
