"""What happens to one question: a module for each step."""
