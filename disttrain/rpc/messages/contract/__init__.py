"""What travels between two workers, and what every way for it does."""
