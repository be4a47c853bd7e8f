"""The journal in PostgreSQL, on a real server."""
