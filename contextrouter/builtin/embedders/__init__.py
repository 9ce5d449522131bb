"""Built-in embedders. Entry points register them, as for plugins of other packages."""
