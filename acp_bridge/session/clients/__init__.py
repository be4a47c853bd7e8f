"""The clients that have one session: what they are asked and told, who of them counts for what."""
