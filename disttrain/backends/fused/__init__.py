"""Fused kernels: functions on arrays that would be several passes over memory otherwise."""
