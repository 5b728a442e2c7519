"""State dicts under any parallelism: names, optimizer states, values, and the boxes they are cut into."""
