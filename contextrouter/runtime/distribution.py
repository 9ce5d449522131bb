"""The name under which this package is published, and its version: the one place for both."""

DISTRIBUTION = "contextrouter-rag"
"""The name for pip; the package is imported as `contextrouter`."""
VERSION = "0.1.0"
