"""A PDF written by hand, for tests."""

from __future__ import annotations


def pdf(pages: list[list[str]], *, encrypted: bool = False) -> bytes:
    """A PDF of pages of paragraphs, written by hand."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for paragraphs in pages:
        lines = "".join(
            f"BT /F1 12 Tf 72 {700 - 60 * n} Td ({text}) Tj ET\n" for n, text in enumerate(paragraphs)
        )
        objects.append(f"<< /Length {len(lines)} >>\nstream\n{lines}endstream")
        box = "/MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R {box} /Contents {len(objects)} 0 R >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    out, places = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n" + "".join(
        f"{place:010} 00000 n \n" for place in places
    )
    word = "ab" * 32
    rules = (
        f"/Encrypt << /Filter /Standard /V 1 /R 2 /O <{word}> /U <{word}> /P -4 >> /ID [<{word}> <{word}>]"
    )
    locked = rules if encrypted else ""
    return (
        out + f"trailer << /Size {len(objects) + 1} /Root 1 0 R {locked} >>\nstartxref\n{start}\n%%EOF"
    ).encode("latin-1")
