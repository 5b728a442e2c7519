"""Sharded checkpoints: saved by any number of ranks, loaded by any other; PyTorch's names.

    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id="run/step_100")
    dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id="run/step_100")

``docs/checkpoints.md`` says what lies in the folder and what survives what.
"""

from .api import CheckpointException
from .default_planner import DefaultLoadPlanner, DefaultSavePlanner, LoadReport
from .filesystem import FileSystemReader, FileSystemWriter
from .hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from .metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from .optimizer import load_sharded_optimizer_state_dict
from .planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from .state_dict_loader import load, load_state_dict
from .state_dict_saver import async_save, save, save_state_dict
from .stateful import Stateful
from .storage import StorageReader, StorageWriter
from .trained import Trained, load_model, load_newest, newest_checkpoint
