"""Captured calls, done again."""
