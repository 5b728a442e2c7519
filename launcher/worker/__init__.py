"""What becomes of a process before and while it is a rank: environment, files, program, end."""
