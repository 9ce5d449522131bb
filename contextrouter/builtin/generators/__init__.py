"""Built-in generators. Entry points register them, as for plugins of other packages."""
