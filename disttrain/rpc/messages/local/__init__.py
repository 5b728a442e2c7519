"""Messages between processes of one host: Unix sockets, and shared memory for what is large."""
