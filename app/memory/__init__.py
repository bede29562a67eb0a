"""What we learn."""
