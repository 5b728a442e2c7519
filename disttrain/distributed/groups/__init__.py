"""Which groups this rank is in: how they are made, named, kept and left; backends of a program's own."""
