"""Sharded tensors: DTensor, its placements, and how tensors and modules become distributed."""

from ..mesh import DeviceMesh, init_device_mesh
from .api import DTensor, DTensorSpec, distribute_module, distribute_tensor
from .dispatch import implicit_replication
from .factories import empty, full, ones, rand, randn, zeros
from .placements import Partial, Placement, Replicate, Shard, _StridedShard
from .specs import NamedSharding, PartitionSpec, spec_of

__outward__ = ()  # what reaches other ranks is done by operations on DTensors
