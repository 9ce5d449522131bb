"""Built-in interpreters. Entry points register them, as for plugins of other packages."""
