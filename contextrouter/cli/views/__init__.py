"""What commands print of a plan, a context and an answer."""
