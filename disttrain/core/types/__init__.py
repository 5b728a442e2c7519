"""Element types, devices, orders of elements, and which type work is done in. No tensor."""
