"""Built-in fact sources. Entry points register them, as for plugins of other packages."""
