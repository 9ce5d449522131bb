"""Runners prepare, embed and store the changed documents: in this process, in several, or on Ray."""
