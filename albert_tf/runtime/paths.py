"""Paths as users write them: `~` for a home folder, and globs."""

import glob
import os
import re

# At the beginning, or after the colon of a prefix (google:~/model) or a comma of a list.
_HOME = re.compile(r"(^|[:,]\s*)(~[^/:,]*)")


def expand(text: str) -> str:
    """Return a path, or several with prefixes and commas, with `~` and `~USER` expanded."""
    return _HOME.sub(lambda found: found[1] + os.path.expanduser(found[2]), text)


def matching(pattern: str) -> list[str]:
    """Return the paths that match a glob, sorted; a path that exists stands for itself."""
    return [pattern] if os.path.lexists(pattern) else sorted(glob.glob(pattern, recursive=True))
