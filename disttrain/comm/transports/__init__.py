"""What moves arrays between the ranks of a group: a folder each, and the choice among them."""
