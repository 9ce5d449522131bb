"""Cache configuration: builds the cache tiers from the section `[cache]`."""

from __future__ import annotations

from contextrouter.cache.tiers import Tier, Tiers
from contextrouter.errors import Problem, SettingsError
from contextrouter.settings import Settings


def build_tiers(settings: Settings) -> Tiers:
    """Return the configured tiers, not open yet. Raises SettingsError for keys that contradict each other."""
    cache = settings.cache
    return Tiers(cache.max_bytes, _build_outer_tier(settings), secret=cache.secret, secrets=settings.secrets)


def _build_outer_tier(settings: Settings) -> Tier | None:
    cache = settings.cache
    if cache.tier == "disk":
        if not cache.path:
            raise _settings_error(settings, "path", "tier = 'disk' needs the path of a folder; set path.")
        from contextrouter.cache.disk import DiskTier

        return DiskTier(cache.path, namespace=cache.namespace, max_bytes=cache.disk_max_bytes)
    if cache.tier == "redis":
        if not cache.url.startswith(("redis://", "rediss://", "unix://")):
            raise _settings_error(
                settings,
                "url",
                "tier = 'redis' needs the url of a server; set url to one such as 'redis://localhost:6379/0'.",
            )
        from contextrouter.cache.redis import RedisTier

        return RedisTier(cache.url, namespace=cache.namespace, timeout=cache.timeout_seconds)
    return None


def _settings_error(settings: Settings, key: str, message: str) -> SettingsError:
    origin = settings.origins.get(f"cache.{key}") or settings.origins.get("cache.tier", "")
    file, _, line = origin.rpartition(":")
    number = int(line) if file and line.isdigit() else None
    return SettingsError([Problem(message, key=f"cache.{key}", file=file if number else origin, line=number)])
