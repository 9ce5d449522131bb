"""Fan-out (step 4): asks all sources at once, inside one deadline."""

from contextrouter.pipeline.fan_out.calls import fan_out

__all__ = ["fan_out"]
