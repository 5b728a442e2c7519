"""Kernels of their own: what the kernel language does not say, written as text of loops."""
