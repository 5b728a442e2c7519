"""What a job gives its processes: environment, segment, black boxes; how they wait and end."""
