"""Postgres: one module for each group of tables."""
