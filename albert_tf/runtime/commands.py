"""Command-line programs whose absl flags are the fields of a frozen dataclass.

    @dataclasses.dataclass(frozen=True)
    class BuildOptions(CommandOptions):
        corpus: str = option("the text, e.g. text:'corpus/*.txt'", path=True)
        seq_length: Annotated[int, POSITIVE] = option("pieces per sequence", 512)

    if __name__ == "__main__":
        run(build, BuildOptions, __doc__)

Every command takes --help and a repeatable --set key=value, and has an option --dry_run. The exit
status is 0 for success, 2 for a mistake of the user or a failure of the machine (reported in one
line), and 130 or 143 if the command was interrupted or terminated, after cleaning up.
"""

import codecs
import dataclasses
import functools
import io
import json
import logging
import os
import signal
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from albert_tf.runtime import process_end, programs, settings
from albert_tf.runtime.bounds import Bounded
from albert_tf.runtime.errors import MACHINE_ERRNOS, InputError, MachineError, printable
from albert_tf.runtime.files import paths

# Set before TensorFlow is imported. Its start-up log would bury the output of a command. Keras 3,
# which it loads unless `tf.keras` is tf_keras, takes two fifths of a command's start-up time.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

# While a command (python -m data.build) loads its libraries, Ctrl-C ends it without a traceback.
if programs.is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, process_end.exit_quietly)

T = TypeVar("T")
# Other options -> the values beside which an option applies, or a function that returns them.
Conditions = Mapping[str, Sequence[str] | Callable[[], Sequence[str]]]
USAGE_ERROR = 2
_DEFINERS: dict[type, Callable] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
    tuple: flags.DEFINE_multi_string,
}


class CommandOptions(Bounded):
    """A mixin for the options of a command; error messages about values show the flags.

    Raises:
      InputError: an option is set that does not apply beside the others.
    """

    KEY = "--{}"

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = dataclasses.fields(typing.cast(Any, self))
        defaults = {field.name: field.default for field in fields}
        for field in fields:
            if (check := field.metadata["check"]) and getattr(self, field.name) is not None:
                check(getattr(self, field.name))
        for field in fields:
            if getattr(self, field.name) == field.default:
                continue
            flag = field.metadata.get("flag", field.name)
            if (needed := field.metadata["needs"]) and not getattr(self, needed):
                raise InputError(
                    f"--{flag} requires --{needed}. Received: {getattr(self, field.name)!r} alone. "
                    f"Pass --{needed}, or leave --{flag} out."
                )
            value = getattr(self, field.name)
            shown = ", ".join(value) if isinstance(value, tuple) else value
            if other := field.metadata["excludes"]:
                if (given := getattr(self, other)) != defaults[other]:
                    raise InputError(
                        f"--{flag} and --{other} exclude each other. Received: --{flag}={shown}, "
                        f"--{other}={given}. Leave one of them out."
                    )
            for what, where, remedy in _rules(field, value):
                for other, values in _resolved(where).items():
                    if (given := getattr(self, other)) not in (None, *values):
                        raise InputError(
                            f"{what} is only for --{other}={', '.join(values)}. Received: "
                            f"--{other}={given} and --{flag}={shown}. {remedy}"
                        )


def _resolved(conditions: Conditions) -> dict[str, Sequence[str]]:
    return {other: values() if callable(values) else values for other, values in conditions.items()}


def _where(field: dataclasses.Field, excluding: list[str]) -> str:
    """Return where an option applies, for its help text; `excluding` are those that exclude it."""
    metadata = field.metadata
    conditions = {"": metadata["only_for"], **metadata["values_only_for"]}
    text = ""
    for what, where in {**conditions, "repeated": metadata["repeated_only_for"]}.items():
        shown = [f"--{other}={', '.join(values)}" for other, values in _resolved(where).items()]
        text += f"; {what}{' ' * bool(what)}only for {' and '.join(shown)}" if shown else ""
    others = [metadata["excludes"]] * bool(metadata["excludes"]) + excluding
    return text + "".join(f"; not with --{other}" for other in others)


def _rules(field: dataclasses.Field, value: Any) -> Iterator[tuple[str, Conditions, str]]:
    """Yield what an option that is set to `value` states: what, where it applies, the remedy."""
    flag = f"--{field.metadata.get('flag', field.name)}"
    yield flag, field.metadata["only_for"], "Leave it out."
    if isinstance(value, tuple):
        if len(value) > 1:
            yield f"{flag}, repeated,", field.metadata["repeated_only_for"], "Pass it once."
    else:
        yield (
            f"{flag}={value}",
            field.metadata["values_only_for"].get(value, {}),
            f"Pass another {flag}.",
        )


def option(
    help: str,
    default: Any = dataclasses.MISSING,
    flag: str | None = None,
    path: bool = False,
    only_for: Conditions | None = None,
    values_only_for: Mapping[str, Conditions] | None = None,
    repeated_only_for: Conditions | None = None,
    needs: str | None = None,
    excludes: str | None = None,
    check: Callable[[Any], object] | None = None,
) -> Any:
    """Return a field of an options dataclass; without a default the flag is required.

    Args:
      help: the help text; --help adds where the option applies.
      default: the default value.
      flag: a flag name that cannot be a field name, such as --from.
      path: True for a path, with or without a prefix, or several; `paths.expand` applies to it.
      only_for: other options -> the values beside which this one may be set, or a function that
        returns them. One that is None, since its default depends on the input, is checked when
        `dataclasses.replace` sets it.
      values_only_for: values of this option -> as `only_for`, for this value; not the default.
      repeated_only_for: as `only_for`, for an option that is given more than once.
      needs: an option that must be set with this one.
      excludes: an option that must not be set with this one, to another value than its default.
      check: raises an error for an impossible value, before other options are asked.
    """
    by_value = values_only_for or {}
    metadata: dict[str, Any] = {
        "help": help,
        "path": path,
        "only_for": only_for or {},
        "values_only_for": {key: by_value[key] for key in by_value if key != default},
        "repeated_only_for": repeated_only_for or {},
        "needs": needs,
        "excludes": excludes,
        "check": check,
    }
    return dataclasses.field(default=default, metadata=metadata | ({"flag": flag} if flag else {}))


@process_end.without_finalizers()
def run(
    program: Callable[[Any], int | None], options_class: type, doc: str | None, positional: str = ""
) -> None:
    """Parse the command line, run `program(options)` and exit with its status.

    `positional` is the flag that receives an argument without a name.
    """
    spec = sys.modules["__main__"].__spec__  # None where a script is run by its path
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    _escape_output()
    name = spec.name.removesuffix(".__main__") if spec else os.path.basename(sys.argv[0])
    sys.stderr = sys.stderr or open(os.devnull, "w")  # closed by `2>&-`
    start = programs.shown(f"python -m {name}") if spec else f"python {sys.argv[0]}"
    terminate = functools.partial(process_end.terminate, os.getpid())
    signal.signal(signal.SIGTERM, terminate)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, terminate)
    sys.unraisablehook = process_end.repeat_signal
    try:
        if signal.getsignal(signal.SIGINT) is process_end.exit_quietly:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        options: Any = parse(options_class, sys.argv, doc or "", start, positional)
        status = program(options)
        if sys.stdout:  # closed by `>&-`
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(process_end.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(process_end.reader_left())
    except (InputError, MachineError) as error:
        print(f"{name}: error: {programs.shown(one_line(error))}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    except OSError as error:
        if error.errno not in MACHINE_ERRNOS:
            raise
        if error.filename is None and sys.stdout:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        where = error.filename or "stdout or another open file"
        print(
            f"{name}: error: {where}: {error.strerror}. Free some space, or use another path.",
            file=sys.stderr,
        )
        sys.exit(USAGE_ERROR)
    sys.exit(status or 0)


def _escape_output() -> None:
    r"""Print characters that the encoding of stdout lacks as JSON escapes them: \u6f22.

    Results in JSON stay valid. Python escapes them by itself in stderr.
    """

    def escape(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        return json.dumps(error.object[error.start : error.end])[1:-1], error.end

    codecs.register_error("json_escape", escape)
    if isinstance(sys.stdout, io.TextIOWrapper):  # no test's or notebook's own stream
        sys.stdout.reconfigure(errors="json_escape")


def parse(
    options_class: type[T], argv: Sequence[str], doc: str, usage: str, positional: str = ""
) -> T:
    """Parse `argv`, which begins with the program's name, into `options_class`.

    --help prints the help text and exits. `positional` is as in `run`.

    Raises:
      InputError: a flag is unknown, missing or repeated, or its value has the wrong type.
    """
    values = flags.FlagValues()
    fields = {
        field.metadata.get("flag", field.name): field
        for field in dataclasses.fields(typing.cast(Any, options_class))
    }
    hints = typing.get_type_hints(options_class)
    for flag, field in fields.items():
        excluding = [f for f, other in fields.items() if other.metadata["excludes"] == field.name]
        _define(flag, hints[field.name], field, excluding, values)
    text = fields["set"].metadata["help"] if "set" in fields else "key=value: as --key=value"
    flags.DEFINE_multi_string("set", [], f"{text}; may be repeated", values)
    if any(arg in ("--help", "-help", "-h", "--helpfull") for arg in argv[1:]):
        argument = f" [{positional.upper()}]" if positional else ""
        about = programs.shown(doc.strip())
        print(f"{usage}{argument} [flags]\n\n{about}\n\nflags:\n{values.get_help()}")
        sys.exit(0)
    try:
        positionals = values(list(argv))[1:]
    except (flags.Error, UnicodeDecodeError) as error:  # the latter from a --flagfile
        settings_of = "set" in fields and isinstance(error, flags.UnrecognizedFlagError)
        advice = "; settings of the configuration are passed as --set KEY=VALUE" * settings_of
        raise InputError(f"{error}{advice} (see --help)") from None
    if positionals and positional and values[positional].value is None:
        values[positional].value = positionals.pop(0)
    if positionals:
        raise InputError(f"unexpected argument {positionals[0]!r}: pass flags as --name=value")
    given = {field.name: values[flag].value for flag, field in fields.items() if flag != "set"}
    for flag, field in fields.items():
        has_default = field.default not in ("", dataclasses.MISSING)
        if field.metadata["path"] and given.get(field.name) == "" and has_default:
            raise InputError(f"--{flag} must not be empty. Leave it out, or pass a path.")
    chosen = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    assignments = tuple(values["set"].value)
    if "set" in fields:  # the program applies them to a deeper tree
        options = options_class(**chosen | {"set": assignments})
    else:
        options = settings.override(options_class(**chosen), assignments)
    for flag, field in fields.items():
        if getattr(options, field.name) in (None, "") and field.default is dataclasses.MISSING:
            raise InputError(f"--{flag} is required: {field.metadata['help']}")
    return _with_expanded_paths(options)


def _with_expanded_paths(options: Any) -> Any:
    values = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if field.metadata["path"] and getattr(options, field.name) is not None
    }
    for name, value in values.items():
        for path in [value] if isinstance(value, str) else value:
            paths.require_utf8(path, f"--{name}")
    expanded = {
        name: paths.expand(value) if isinstance(value, str) else tuple(map(paths.expand, value))
        for name, value in values.items()
    }
    return dataclasses.replace(options, **expanded)


def one_line(error: BaseException) -> str:
    """Return the error's message on one line, `printable`, without TensorFlow's graph locations."""
    traceback_marks = ("Graph execution error:", "Detected at node", "  File ")
    lines = [line for line in str(error).splitlines() if not line.startswith(traceback_marks)]
    return printable(" ".join(" ".join(lines).split()))


def _define(
    name: str, hint: Any, field: dataclasses.Field, excluding: list[str], values: flags.FlagValues
) -> None:
    if name == "set":
        return
    _, kind, _ = settings._kind(hint)
    default = None if field.default is dataclasses.MISSING else field.default
    required = " (required)" if field.default is dataclasses.MISSING else ""
    extra = {} if kind is tuple else {"allow_overwrite": False}
    text = field.metadata["help"] + _where(field, excluding) + required
    _DEFINERS[kind](name, default, text, flag_values=values, **extra)
