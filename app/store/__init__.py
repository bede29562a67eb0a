"""What we keep: Postgres behind repositories."""
