"""Everything is brought into the space of another embedder, by a command (`command`) over its own statements (`store`)."""
