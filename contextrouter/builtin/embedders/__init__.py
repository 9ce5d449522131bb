"""Built-in plugins; they enter by the same entry points as anybody's."""
