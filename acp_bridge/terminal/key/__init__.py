"""`acp-bridge key`."""
