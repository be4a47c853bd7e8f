"""All sessions of a bridge: the live ones, the listing, and the pool of processes without one."""
