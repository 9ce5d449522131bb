"""Hidden text detection: CSS styles that hide text from readers, which prompt injection uses."""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?<![-\w])opacity\s*:\s*0*(?:\.0+)?(?![.\d])|font-size\s*:\s*0(?![.\d]*[1-9])"
    r"|(?:left|top|text-indent)\s*:\s*-\d{3,}|(?<![-\w])(?:max-)?(?:height|width)\s*:\s*0(?:px)?\s*(?:;|$)",
    re.I,
)
_COLOUR = re.compile(r"(?<![-\w])(background(?:-color)?|color)\s*:\s*([^;!]+)", re.I)


def invisible(style: str) -> bool:
    """Whether what is styled so is seen by no reader."""
    if _HIDDEN.search(style):
        return True
    colours = {
        name.lower().removesuffix("-color"): value.strip().lower() for name, value in _COLOUR.findall(style)
    }
    return "color" in colours and (
        colours["color"] == colours.get("background") or colours["color"] == "transparent"
    )
