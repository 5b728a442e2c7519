"""Element types, devices, orders of elements in memory, and which type work is done in. No tensor."""
