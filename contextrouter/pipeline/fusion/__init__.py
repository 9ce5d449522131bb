"""Fusion (step 8): one order out of many ranked lists."""

from contextrouter.pipeline.fusion.merging import NO_WEIGHT, fuse

__all__ = ["NO_WEIGHT", "fuse"]
