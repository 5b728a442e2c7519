"""State dicts under any parallelism: names, optimizer states, values, and their boxes."""
