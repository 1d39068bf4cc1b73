"""The note that a vocabulary does not fit a text."""

NOTE_THRESHOLD = 0.02  # share of unknown pieces above which the note is due


def unknown_note(unknown: int, pieces: int, chosen: str) -> str | None:
    """Return a note for the user if too many pieces are unknown, else None.

    Args:
      unknown: the number of unknown pieces.
      pieces: the number of all pieces, without special ones.
      chosen: the setting with which the user chose the vocabulary, such as a flag.
    """
    if unknown <= NOTE_THRESHOLD * pieces:
        return None
    return (
        f"{unknown / pieces:.1%} of the pieces are unknown to the vocabulary. Check that {chosen} "
        "is for this language."
    )
