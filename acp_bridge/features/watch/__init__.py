"""A turn in which the agent falls silent."""
