"""The kernel language as CUDA C, compiled by NVRTC: needs no GPU until something is launched."""
