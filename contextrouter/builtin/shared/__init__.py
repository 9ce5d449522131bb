"""Code that several built-in plugins share."""
