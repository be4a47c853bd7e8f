"""Tells the user, on the desktop or by ntfy, that a session needs them; loaded when it is set."""
