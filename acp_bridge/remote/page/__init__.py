"""The page for a browser: its files, its logins, and the bridge's clients that serve it."""
