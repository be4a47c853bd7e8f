"""What a client tells the agent's model to be, `systemPrompt`: it stays with the session."""
