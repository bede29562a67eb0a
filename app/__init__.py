"""Mneme: an OpenAI-compatible proxy that remembers."""
