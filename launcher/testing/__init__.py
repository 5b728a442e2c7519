"""``@pytest.mark.ranks``: tests that run on several ranks. ``plugin`` is what pytest loads, for
whom it costs nothing until a test is marked; docs/testing.md tells a user."""
