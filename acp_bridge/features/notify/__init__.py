"""Tells the user, on the desktop or by ntfy, that a session needs them; loaded if set up."""
