"""Serves ACP on stdin and stdout: one connection, its requests, and its bounded end."""
