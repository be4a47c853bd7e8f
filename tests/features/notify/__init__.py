"""How the user is told that a session waits."""
