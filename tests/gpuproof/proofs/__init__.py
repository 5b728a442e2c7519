"""What each part does: ``prove(job)`` runs cases, one after the other."""
