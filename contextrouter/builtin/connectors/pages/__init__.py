"""Web pages and feeds to documents: character sets, extraction in a process that can be killed, passages."""
