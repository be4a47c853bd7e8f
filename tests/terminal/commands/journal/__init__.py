"""`acp-bridge journal`."""
