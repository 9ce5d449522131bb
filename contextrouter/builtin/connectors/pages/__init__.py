"""Web pages and feeds to documents: character sets, text extraction in a separate process, passages."""
