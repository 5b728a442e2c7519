"""What all tests of this folder do."""

from support.little_garbage import only_what_the_test_makes

__all__ = ["only_what_the_test_makes"]
