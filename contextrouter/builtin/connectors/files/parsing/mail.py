"""Mail: a message, or each message of a mailbox, with its decoded headers and its text once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from hashlib import sha256
from typing import Any

from contextrouter.builtin.connectors.files.parsing.markups.html_elements import html_markdown
from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN, MBOX, PLAIN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable, distinct_names
from contextrouter.builtin.connectors.files.parsing.text import decode

_FROM_LINE = re.compile(rb"^From [^\r\n]*\r?\n", re.M)
_ESCAPED = re.compile(rb"^>(>*From )", re.M)


def read_message(data: bytes) -> Parsed:
    """One message: sender, receivers and date, and its text; parts that are quoted keep their `>`."""
    message: Any = message_from_bytes(data, policy=policy.default)
    body, kind, links = _body(message)
    moment = _sent_at(message)
    header = {
        "from": _header(message, "from"),
        "to": _header(message, "to"),
        "cc": _header(message, "cc"),
        "message_id": _header(message, "message-id").strip("<> "),
        "in_reply_to": _header(message, "in-reply-to").strip("<> "),
    }
    attachments = [_file_name(part) for part in _attachments(message)]
    lines = [f"{name.capitalize()}: {header[name]}" for name in ("from", "to", "cc") if header[name]]
    lines += [f"Date: {moment.replace('T', ' ')}"] if moment else []
    lines += [f"Attachment, not read: {name}" for name in attachments]
    subject = _header(message, "subject")
    if not body.strip() and not subject:
        raise Unreadable("holds no text.")
    metadata: dict[str, Any] = {name: value for name, value in header.items() if value}
    if attachments:
        metadata["attachments"] = attachments
    between = "  \n" if kind == MARKDOWN else "\n"
    return Parsed(
        text=between.join(lines) + "\n\n" + body.strip(),
        media_type=kind,
        title=subject,
        date=moment,
        name=header["message_id"] or sha256(data).hexdigest()[:16],
        links=links,
        metadata=metadata,
    )


def read_mailbox(data: bytes) -> Parsed:
    """Each message of a mailbox as a document of its own. Raises Unreadable when there is none."""
    parts, problems = [], []
    for number, message in enumerate(_messages(data), 1):
        try:
            parts.append(read_message(message))
        except Unreadable as error:
            problems.append(f"message {number} {error}")
    if not parts:
        raise Unreadable("holds no message that can be read.")
    return Parsed(text="", media_type=MBOX, parts=distinct_names(parts), problems=problems)


def _messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages. A "From " line begins one at the start of the file or after a blank line."""
    starts = [
        match
        for match in _FROM_LINE.finditer(data)
        if not match.start() or data[max(match.start() - 3, 0) : match.start()].endswith((b"\n\n", b"\n\r\n"))
    ]
    for match, following in zip(starts, [*starts, None][1:], strict=True):
        end = following.start() if following else len(data)
        yield _ESCAPED.sub(rb"\1", data[match.end() : end])


def _header(message: Any, name: str) -> str:
    try:
        return " ".join(str(message.get(name) or "").split())
    except Exception:  # the parser of addresses fails on some that are broken
        return ""


def _sent_at(message: Any) -> str:
    try:
        moment = message["date"].datetime
    except Exception:  # no date, or one that is none
        return ""
    return str(moment.isoformat()) if moment else ""


def _body(message: Any) -> tuple[str, str, list[str]]:
    part: EmailMessage | None = message.get_body(preferencelist=("plain", "html"))
    if part is None:
        return "", PLAIN, []
    text = _decode_part(part)
    if part.get_content_type() == "text/html":
        markdown, links = html_markdown(text)
        return markdown, MARKDOWN, links
    return text.replace("\r\n", "\n"), PLAIN, []


def _decode_part(part: EmailMessage) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        return data.decode(part.get_content_charset() or "ascii")
    except (LookupError, UnicodeDecodeError):
        return decode(data, "")[0] or ""


def _attachments(message: Any) -> Iterator[Any]:
    try:
        yield from message.iter_attachments()
    except (AttributeError, TypeError):  # no parts
        return


def _file_name(part: Any) -> str:
    return " ".join(str(part.get_filename() or part.get_content_type()).split())[:200]
