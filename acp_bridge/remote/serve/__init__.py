"""`acp-bridge serve`: clients from elsewhere."""
