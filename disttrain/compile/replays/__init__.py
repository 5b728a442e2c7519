"""Running a captured graph again: on the host instruction by instruction, on a device as one."""
