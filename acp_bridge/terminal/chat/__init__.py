"""`acp-bridge chat` and `attach`: a person at a terminal is a client of a session."""
