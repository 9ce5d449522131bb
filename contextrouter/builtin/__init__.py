"""Built-in plugins. Entry points register them, as for plugins of other packages."""
