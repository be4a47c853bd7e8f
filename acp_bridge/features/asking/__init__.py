"""Questions to the agent beside the session."""
