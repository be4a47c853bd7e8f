"""The journal in PostgreSQL; psycopg is imported when a database is first used."""
