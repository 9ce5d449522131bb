"""Signs that a page is not what was asked for: made by scripts, a form to sign in, an error in disguise."""

from __future__ import annotations

import re
from typing import Any

SHORT = 400
"""Characters below which a page says little of its own."""
_MOUNTS = ("root", "app", "__next", "__nuxt", "svelte", "app-root", "___gatsby", "main-app", "react-root")
_NEEDS_SCRIPTS = re.compile(
    r"(?:enable|requires?|activate|turn on|activez|aktivieren sie|habilita)\W+(?:\w+\W+){0,3}javascript"
    r"|javascript\W+(?:\w+\W+){0,4}(?:disabled|required|enabled?|aktivieren|deaktiviert|activé)",
    re.I,
)
_ABSENT = re.compile(
    r"(?i)\b(?:error\s*)?404\b|\bnot found\b|no longer (?:exists|available)"
    r"|(?:page|file|document)\W+(?:(?:was|is|could|cannot|not|be|you|requested)\W+){1,5}found\b"
    r"|seite (?:wurde )?nicht gefunden|page (?:introuvable|non trouvée)|página no encontrada"
    r"|pagina non trovata|ページが見つかりません|页面不存在"
)
_SIGN_IN = re.compile(
    r"(?i)\b(?:sign|log)[ -]?in\b|anmelden|einloggen|connexion|se connecter|iniciar sesión|accedi\b"
    r"|登录|ログイン"
)


def reason_unreadable(tree: Any, text: str) -> str:
    """Why a page that was delivered is not read; "" for a page that is. `text` is what was extracted."""
    if len(text) > SHORT:
        return ""
    heads = " ".join(
        " ".join(element.itertext()) for name in ("title", "h1") for element in list(tree.iter(name))[:2]
    )
    if _ABSENT.search(heads):
        return "it says that there is no such page, with a status that says there is."
    if tree.xpath("//input[@type='password']") and _SIGN_IN.search(f"{heads} {text}"):
        return "it is a page to sign in."
    scripts = tree.xpath("//script")
    body = tree.find("body")
    if scripts and body is not None and _is_made_by_scripts(body):
        return "its text is made by JavaScript, which is not run."
    return ""


def _is_made_by_scripts(body: Any) -> bool:
    visible = "".join(
        body.xpath(
            ".//text()[not(ancestor::script or ancestor::style or ancestor::noscript or ancestor::template)]"
        )
    )
    fallback = "".join(text for element in body.iter("noscript") for text in element.itertext())
    if _NEEDS_SCRIPTS.search(f"{visible} {fallback}"[:5_000]):
        return True
    words = " ".join(visible.split())
    is_mount = any(
        element.get("id") in _MOUNTS or element.tag == "app-root"
        for element in body.iterdescendants()
        if isinstance(element.tag, str) and not "".join(element.itertext()).strip()
    )
    return len(words) < 25 and (is_mount or not words)
