"""A group of ranks as programs use it, over any transport; arrays of devices on their way."""
