"""Cache configuration: builds the cache tiers from the section `[cache]`."""

from __future__ import annotations

from contextrouter.cache.tiers import Tier, Tiers
from contextrouter.errors import SettingsError
from contextrouter.settings import Settings
from contextrouter.settings.problems import problem_at


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
            message = "tier = 'redis' needs the url of a server; set url to one such as"
            raise _settings_error(settings, "url", f"{message} 'redis://localhost:6379/0'.")
        from contextrouter.cache.redis import RedisTier

        return RedisTier(cache.url, namespace=cache.namespace, timeout=cache.timeout_seconds)
    return None


def _settings_error(settings: Settings, key: str, message: str) -> SettingsError:
    origin = settings.origins.get(f"cache.{key}") or settings.origins.get("cache.tier", "")
    return SettingsError([problem_at(origin, f"cache.{key}", message)])
