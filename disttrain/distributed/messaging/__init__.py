"""Messages between workers: requests and their answers, bytes and arrays, over any wire."""
