"""A model that needs no network: a dialogue, a small text file, says what it answers."""
