"""`acp-bridge journal`: takes what is kept into a database, and out of one."""
