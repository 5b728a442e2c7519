"""What the launcher decides, pure: what a job is, who takes part, what follows an end."""
