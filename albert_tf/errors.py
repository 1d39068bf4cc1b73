"""Errors meant for people: a user's mistake, told in one line."""


class InputError(ValueError):
    """A mistake in what the user passed.

    The message is one line that names the argument, the rule, the value received and the remedy.
    Every command prints it without a traceback and exits with status 2.
    """


class InputNotFoundError(InputError, FileNotFoundError):
    """A path or a glob that matches nothing. The message names it and the working directory."""


class ConfigError(InputError):
    """A configuration with an unknown key or an impossible value."""
