"""All sessions of a bridge: the live ones, the listing, and the process that waits for one."""
