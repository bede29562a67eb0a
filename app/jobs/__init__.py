"""The worker: what is done after a turn, and again and again."""
