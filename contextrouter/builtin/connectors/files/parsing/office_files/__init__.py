"""Office documents: Word, PowerPoint, Excel and OpenDocument."""
