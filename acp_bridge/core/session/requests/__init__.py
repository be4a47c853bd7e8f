"""What clients ask of a session's agent: requests passed on, settings, questions beside it."""
