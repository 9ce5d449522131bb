"""What several built-in plugins share."""
