"""One program on many devices: meshes of devices, how arrays lie on them, and one function on all
blocks at once. Each rank of a job is a device; a process alone may have simulated ones, whose
blocks are computed together, with the same results."""

from .arrays import assembled, lay, layout_of, shards
from .inventory import Device, devices, local_devices, simulate
from .layouts import Indivisible, Layout, OneDevice, OverMesh, Spec
from .mesh import Mesh
from .misfits import NotReplicated
from .pmap import pmap
from .shard_map import shard_map

__all__ = [
    "Device",
    "Indivisible",
    "Layout",
    "Mesh",
    "NotReplicated",
    "OneDevice",
    "OverMesh",
    "Spec",
    "assembled",
    "devices",
    "lay",
    "layout_of",
    "local_devices",
    "pmap",
    "shard_map",
    "shards",
    "simulate",
]
__outward__ = ()  # what reaches other ranks is done by operations on DTensors, and by groups
