"""Clients, one agent, one queue, one journal: what the project is for."""
