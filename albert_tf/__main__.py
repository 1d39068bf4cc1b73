"""All commands of the package under one name.

    albert-tf data.build --corpus=text:'corpus/*.txt' ...
    python -m albert_tf data.build ...                       # the same in a checkout

Without a command, it prints them in the order of use.
"""

import ast
import runpy
import sys

from albert_tf.runtime import extras, process_end, programs, settings

COMMANDS = (
    "data.clean",
    "data.train_tokenizer",
    "data.build",
    "data.import_records",
    "data.show_records",
    "data.pairs",
    "pretraining.experiments",
    "pretraining.tpu_check",
    "pretraining.train",
    "pretraining.adapt",
    "pretraining.sweep",
    "pretraining.evaluate",
    "pretraining.similarity",
    "finetuning.train",
    "finetuning.predict",
    "finetuning.compare",
    "finetuning.ensemble",
    "finetuning.distill",
    "finetuning.depth",
    "finetuning.embed",
    "finetuning.mine",
    "finetuning.table",
    "finetuning.learning_curve",
    "export",
    "convert",
    "info",
)
_WIDTH = max(map(len, COMMANDS))
_USAGE_ERROR = 2
# The modules that the extra `train` installs.
_OF_TRAIN = ("google_crc32c", "matplotlib", "pkg_resources", "scipy", "sklearn", "yaml")


def main() -> int:
    """Run the command that the first argument names, with the other arguments."""
    name, *arguments = sys.argv[1:] or ["--help"]
    name = name.removeprefix("albert_tf.")
    if name in ("--help", "-h", "help"):
        try:
            print(overview(), flush=True)
        except BrokenPipeError:
            return process_end.reader_left()
        return 0
    if name not in COMMANDS:
        alike = [command for command in COMMANDS if command.endswith(f".{name}")]
        unknown = settings.unknown_key(name, COMMANDS, "command")
        if alike:
            unknown = f"unknown command `{name}`. Did you mean {' or '.join(alike)}?"
        print(f"albert-tf: error: {unknown}", file=sys.stderr)
        return _USAGE_ERROR
    programs.add_to_path()
    sys.argv[:] = [name, *arguments]
    try:
        runpy.run_module(_module(name), run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OF_TRAIN:
            raise
        print(f"albert-tf: error: {extras.missing(package, 'train', name)}", file=sys.stderr)
        return _USAGE_ERROR
    return 0


def overview() -> str:
    """Return the list of commands, each with the first line of its documentation."""
    lines = [f"  {name:{_WIDTH}}  {_about(name)}" for name in COMMANDS]
    start = "albert-tf" if programs.is_installed() else "python -m albert_tf"
    return "\n".join([f"{start} COMMAND [flags]    (COMMAND --help lists the flags)", "", *lines])


def _module(name: str) -> str:
    return name if "." in name else f"albert_tf.{name}"


def _about(name: str) -> str:
    with open(programs.source(_module(name)), encoding="utf-8") as file:
        doc = ast.get_docstring(ast.parse(file.read())) or ""
    return doc.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
