"""The page for a browser: its files, and the client of the bridge that each open page is."""
