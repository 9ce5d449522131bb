"""Built-in transforms: chunking and enrichment of documents. Entry points register them."""
