"""`acp-bridge journal`: copies the kept sessions into a database, or out of one."""
