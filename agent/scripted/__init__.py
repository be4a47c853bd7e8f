"""A model without a network: it says what a dialogue, a small text file, tells it to."""
