"""What ranking needs of a user, in the server process: words, vectors and places, without any text."""
