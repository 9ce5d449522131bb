"""The distribution name and the version of this package."""

DISTRIBUTION = "contextrouter-rag"
"""The name for pip; the package is imported as `contextrouter`."""
VERSION = "0.1.0"
