"""Keeps the system prompt that a client gives with its session."""
