"""When a score is shown with its standard error."""

MIN_EXAMPLES = 30  # examples that a standard error needs


def percent_with_error(share: float, error: float, count: float) -> str:
    """Return a share in percent with its standard error, in 16 characters.

    For fewer than `MIN_EXAMPLES` examples, and at 0 and 100 %, spaces replace the error: ± is read
    as the width of a normal distribution, which is then a poor approximation.
    """
    shown = f" ± {error:6.2%}" if count >= MIN_EXAMPLES and error else ""
    return f"{share:7.2%}{shown:9}"
