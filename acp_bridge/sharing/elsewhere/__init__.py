"""Sessions that other bridges hold, passed through to the clients of this one."""
