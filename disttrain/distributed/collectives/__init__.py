"""What groups do with tensors, with several at once, and with plain Python data."""
