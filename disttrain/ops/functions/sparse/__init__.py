"""Sparse tensors: places and values, and the operations on them, composed of primitives on the
values. So gradients, those of gradients, and transforms follow.

Places are arrays of the host, which knows how many there are; values lie on any device.
"""
