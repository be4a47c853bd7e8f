"""Changes of waiting prompts: edit, move, drop."""
