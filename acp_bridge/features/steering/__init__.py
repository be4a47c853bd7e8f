"""A user's words that join the running turn."""
