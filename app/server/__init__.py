"""What builds the processes from the settings, and supervises them."""
