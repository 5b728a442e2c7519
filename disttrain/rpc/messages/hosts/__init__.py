"""Messages between hosts: gRPC streams, and sockets of their own for what is large or small."""
