"""Kernels as CUDA C text. Pure: needs neither CuPy nor a driver."""
