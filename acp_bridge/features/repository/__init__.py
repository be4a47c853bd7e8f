"""How the repository of a session's folder stood when its last turn ended."""
