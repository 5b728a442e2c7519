"""Other libraries' module names over this one. Nothing else knows their layouts."""
