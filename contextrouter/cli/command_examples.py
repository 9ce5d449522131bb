"""Examples of commands, one for each `--help`."""

from __future__ import annotations

EXAMPLES = {
    "demo": 'contextrouter demo "Who founded OpenAI?"',
    "init": "contextrouter init my-folder --preset evidence",
    "check": "contextrouter check --settings my-folder/settings.toml",
    "settings": "contextrouter settings | less",
    "ingest": "contextrouter ingest documents --dry-run",
    "embed": "contextrouter embed --model small",
    "route": 'contextrouter route "Who founded OpenAI?" --source library --limit 5',
    "ask": 'contextrouter ask "And when?" --after "Who founded OpenAI?"',
    "plan": 'contextrouter plan "What changed?" --since 2026-03-01 --json',
    "serve": "contextrouter serve --port 8000",
    "mcp": "contextrouter mcp --settings my-folder/settings.toml --ceiling internal",
    "fetch": "contextrouter fetch https://example.org/news",
    "forget": "contextrouter forget --match author=Ann --dry-run",
    "eval": "contextrouter eval judged.jsonl --compare other.toml --metric nDCG@10",
    "tune": "contextrouter tune judged.jsonl",
    "plugins list": "contextrouter plugins list --json",
    "plugins show": "contextrouter plugins show sqlite",
    "plugins check": 'contextrouter plugins check connectors.tickets --question "Who is on call?"',
    "plugins new": "contextrouter plugins new connector tickets",
    "cache stats": "contextrouter cache stats",
    "cache clear": "contextrouter cache clear",
    "db migrate": "contextrouter db migrate library",
    "db status": "contextrouter db status --json",
    "db tune": "contextrouter db tune library --apply",
    "graph path": 'contextrouter graph path "Ada Lovelace" "Charles Babbage" --hops 3',
    "graph related": 'contextrouter graph related "Ada Lovelace" --limit 10',
    "graph facets": "contextrouter graph facets predicate --about OpenAI",
    "keys new": "contextrouter keys new anna --compartment hr --ceiling internal",
}


def example_of(command: str) -> str:
    """Return the end of the help of a command, such as "graph path"; "": it has no example."""
    return f"\b\nExample:\n  {EXAMPLES[command]}" if command in EXAMPLES else ""
