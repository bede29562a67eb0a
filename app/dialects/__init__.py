"""The forms in which clients speak to models."""
