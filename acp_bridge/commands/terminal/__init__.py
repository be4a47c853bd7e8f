"""The commands that make a terminal a client of sessions; nothing here is imported to serve."""
