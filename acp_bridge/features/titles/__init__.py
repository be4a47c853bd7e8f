"""The title of a session."""
