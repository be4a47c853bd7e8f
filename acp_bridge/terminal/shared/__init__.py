"""Commands by which a terminal is a client of sessions; not imported when serving an editor."""
