"""A model that needs no network: it says what a dialogue, a small text file, tells it to."""
