"""One way to make a command: a frozen dataclass of options becomes its absl flags.

    @dataclasses.dataclass(frozen=True)
    class BuildOptions(CommandOptions):
        corpus: str = option("where the text is, e.g. text:'corpus/*.txt'")
        seq_length: Annotated[int, POSITIVE] = option("pieces per sequence", 512)

    if __name__ == "__main__":
        run(build, BuildOptions, __doc__)

Every command takes --help, --dry_run and a repeatable --set key=value. Exit status: 0 done, 2 a
user's mistake, told in one line; 130 and 143 interrupted and terminated, after cleaning up.
"""

import dataclasses
import errno
import functools
import logging
import os
import signal
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from absl import flags

from albert_tf.runtime import settings
from albert_tf.runtime.bounds import Bounded
from albert_tf.runtime.errors import InputError, MachineError

# Before TensorFlow is imported: its start-up notes would bury what a command has to say, and Keras
# 3, which it loads unless told that `tf.keras` is tf_keras, takes two fifths of a command's start.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

T = TypeVar("T")
USAGE_ERROR = 2
TERMINATED = 128 + signal.SIGTERM
_DEFINERS: dict[type, Callable] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
    tuple: flags.DEFINE_multi_string,
}


class CommandOptions(Bounded):
    """Mixin of a command's options; messages about their values name the flags."""

    KEY = "--{}"


def option(help: str, default: Any = dataclasses.MISSING, flag: str | None = None) -> Any:
    """A field of an options dataclass with its help text; without a default it is required.

    `flag` names a flag that cannot be a field's name, such as --from.
    """
    metadata = {"help": help} | ({"flag": flag} if flag else {})
    return dataclasses.field(default=default, metadata=metadata)


def run(
    program: Callable[[Any], int | None], options_class: type, doc: str | None, positional: str = ""
) -> None:
    """Parses the command line, runs `program(options)` and exits with its status.

    positional: the flag that an argument without a name is for.
    """
    spec = sys.modules["__main__"].__spec__  # None where a script is run by its path
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    name = spec.name.removesuffix(".__main__") if spec else os.path.basename(sys.argv[0])
    signal.signal(signal.SIGTERM, functools.partial(_terminate, os.getpid()))
    try:
        options: Any = parse(options_class, sys.argv, doc or "", f"python -m {name}", positional)
        status = program(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
        sys.exit(128 + signal.SIGPIPE)
    except (InputError, MachineError) as error:
        print(f"{name}: error: {one_line(error)}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
        print(f"{name}: error: {error.strerror}: make room, or write elsewhere.", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    sys.exit(status or 0)


def _terminate(owner: int, *_: object) -> None:
    """What SIGTERM does: an exception, so that `finally` blocks clean up what was begun."""
    if os.getpid() != owner:  # a forked worker: nothing in it is its own to clean up
        os._exit(TERMINATED)
    sys.exit(TERMINATED)


def parse(
    options_class: type[T], argv: Sequence[str], doc: str, usage: str, positional: str = ""
) -> T:
    """Reads `argv` (with the program's name first) into `options_class`; `positional` as in `run`.

    Raises:
      InputError: for an unknown flag, a missing or repeated one or a value of another type.
    """
    values = flags.FlagValues()
    fields = {
        field.metadata.get("flag", field.name): field
        for field in dataclasses.fields(typing.cast(Any, options_class))
    }
    hints = typing.get_type_hints(options_class)
    for flag, field in fields.items():
        _define(flag, hints[field.name], field, values)
    flags.DEFINE_multi_string("set", [], "key=value, typed and strict; may be repeated", values)
    if any(arg in ("--help", "-help", "-h", "--helpfull") for arg in argv[1:]):
        argument = f" [{positional.upper()}]" if positional else ""
        print(f"{usage}{argument} [flags]\n\n{doc.strip()}\n\nflags:\n{values.get_help()}")
        sys.exit(0)
    try:
        positionals = values(list(argv))[1:]
    except flags.Error as error:
        raise InputError(f"{error} (see --help)") from None
    if positionals and positional and values[positional].value is None:
        values[positional].value = positionals.pop(0)
    if positionals:
        raise InputError(f"unexpected argument {positionals[0]!r}: flags are given as --name=value")
    chosen = {field.name: values[flag].value for flag, field in fields.items() if flag != "set"}
    assignments = tuple(values["set"].value)
    if "set" in fields:  # the program's own: it has a deeper tree to apply them to
        options = options_class(**chosen | {"set": assignments})
    else:
        options = settings.override(options_class(**chosen), assignments)
    for flag, field in fields.items():
        if getattr(options, field.name) is None and field.default is dataclasses.MISSING:
            raise InputError(f"--{flag} is required: {field.metadata['help']}")
    return options


def one_line(error: BaseException) -> str:
    """The error's message without line breaks; of TensorFlow's, without the places in a graph."""
    traceback_marks = ("Graph execution error:", "Detected at node", "  File ")
    return " ".join(
        word
        for line in str(error).splitlines()
        if not line.startswith(traceback_marks)
        for word in line.split()
    )


def _define(name: str, hint: Any, field: dataclasses.Field, values: flags.FlagValues) -> None:
    if name == "set":
        return
    _, kind, _ = settings._kind(hint)
    default = None if field.default is dataclasses.MISSING else field.default
    required = " (required)" if field.default is dataclasses.MISSING else ""
    extra = {} if kind is tuple else {"allow_overwrite": False}
    text = field.metadata["help"] + required
    _DEFINERS[kind](name, default, text, flag_values=values, **extra)
