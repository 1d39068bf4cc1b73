"""The contract of a format of exports; `FORMATS` of `albert_tf.export.__main__` lists them."""

import abc
import dataclasses
import os
import shutil
from collections.abc import Sequence
from typing import Any, ClassVar

from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kind import Export, ExportSettings
from albert_tf.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Request:
    """What to export.

    Attributes:
      export: the kind of export.
      run: the run to export.
      tokenizer: the run's tokenizer.
      values: the settings that the kind takes.
      quantization: the type of the weights.
      seq_length: of LiteRT's texts; None: any.
    """

    export: Export
    run: RunDir
    tokenizer: Tokenizer
    values: ExportSettings
    quantization: str = "none"
    seq_length: int | None = None

    def write_beside(self, folder: str) -> None:
        """Write what a model of ids needs beside it: tokenizer/ and the run's config.json."""
        self.tokenizer.save(os.path.join(folder, "tokenizer"))
        shutil.copyfile(self.run.config_path, os.path.join(folder, "config.json"))


class Format(abc.ABC):
    """A format of exports.

    Attributes:
      about: what it is for, in the help text.
      file: the file that each version has in this format and no other.
      quantizations: the types of the weights that it can have.
      options: the options of the command that are only for some formats, and for this one.
    """

    about: ClassVar[str]
    file: ClassVar[str]
    quantizations: ClassVar[Sequence[str]] = ("none",)
    options: ClassVar[Sequence[str]] = ()

    def can_write(self, export: Export) -> bool:
        """Return True if this can be exported in the format."""
        return True

    def check(self, folder: str) -> None:
        """Check what can be checked before a model is loaded.

        Raises:
          InputError: `folder` exists or cannot be read again, or a package is missing.
        """
        outputs.require_new(folder)

    @abc.abstractmethod
    def build(self, request: Request) -> Any:
        """Load the model, and return what `write` needs of it.

        Raises:
          InputError: the run does not have what the request asks for.
        """

    @abc.abstractmethod
    def write(self, built: Any, request: Request, folder: str) -> None:
        """Write a version to a new folder, which appears only when it is complete.

        Raises:
          InputError: a value of the request is impossible, or `folder` cannot be written.
        """
