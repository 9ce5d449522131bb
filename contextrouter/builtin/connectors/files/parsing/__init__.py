"""Document parsing: PDF, Word, Excel, PowerPoint, HTML and text files to plain text or Markdown."""
