"""PyTorch's place for device meshes. They are in ``mesh``."""

from .mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
