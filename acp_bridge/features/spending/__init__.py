"""What turns cost, and the budget of a session."""
