"""Sockets between hosts that carry much: each end proves the job's token, and may be encrypted."""
