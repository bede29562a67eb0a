"""What is learned from what was said: extracted, compared, taken in."""
