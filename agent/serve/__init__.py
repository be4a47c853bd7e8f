"""ACP on stdin and stdout: one connection, and what the client may ask for on it."""
