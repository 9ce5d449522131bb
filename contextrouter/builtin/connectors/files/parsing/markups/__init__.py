"""Markups of texts to Markdown: reStructuredText, AsciiDoc, MDX, wikitext and others."""
