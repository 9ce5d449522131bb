"""Built-in ranking stages. Entry points register them, as for plugins of other packages."""
