"""What a session shows: recorded, then given to each client that has it."""
