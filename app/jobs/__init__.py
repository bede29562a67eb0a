"""The back room: work that happens after the turn."""
