"""Fan-out (step 4): asks all sources at once, inside one deadline."""

from contextrouter.pipeline.fan_out.source_calls import fan_out

__all__ = ["fan_out"]
