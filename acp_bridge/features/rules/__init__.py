"""Rules of the user about what an agent may do: `permissions.toml`, for any agent."""
