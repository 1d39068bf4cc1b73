"""Memory and code of a training step on one TPU chip, compiled ahead of time; no TPU is needed.

    python -m benchmarks.memory --preset=albert-xxlarge-v2 --batch=16 --seq_length=512 \\
        --num_predictions=77 --precision=mixed_bfloat16 --set rematerialize=true

One JSON line; sizes in MB (10^6 bytes). LAMB, no dropout unless the preset has some.
"""

import dataclasses
import json

from albert_tf import cli, hardware, settings
from albert_tf.config import AlbertConfig
from albert_tf.errors import InputError
from pretraining.config import PretrainConfig
from pretraining.lowering import compile_for_tpu, lower_step


@dataclasses.dataclass(frozen=True)
class MemoryOptions:
    """The command line of `benchmarks.memory`."""

    preset: str = cli.option("the model", "albert-base-v2")
    batch: int = cli.option("sequences on the chip", 8)
    seq_length: int = cli.option("pieces per sequence", 128)
    num_predictions: int = cli.option("prediction slots per sequence", 20)
    precision: str = cli.option("float32 or mixed_bfloat16", "float32")
    topology: str = cli.option(
        "as libtpu names it: v4:2x2x1, v5e:2x2, v5p:2x2x1, v6e:2x2", "v5e:2x2"
    )
    dry_run: bool = cli.option("lower the step, do not compile it", False)
    set: tuple[str, ...] = cli.option("key=value of the model", ())


def main(options: MemoryOptions) -> None:
    """Prints the line."""
    if options.precision not in hardware.PRECISIONS[1:]:
        raise InputError(
            f"--precision must be one of {', '.join(hardware.PRECISIONS[1:])}. "
            f"Received: {options.precision!r}."
        )
    model = settings.override(AlbertConfig.from_preset(options.preset), options.set)
    config = PretrainConfig(model=model, precision=options.precision)
    module = lower_step(config, options.batch, options.seq_length, options.num_predictions)
    line = {"benchmark": "memory", **dataclasses.asdict(options), "module_chars": len(module)}
    if not options.dry_run:
        size = compile_for_tpu(module, options.topology)
        line |= {
            "arguments_mb": size.arguments / 1e6,
            "temporaries_mb": size.temporaries / 1e6,
            "code_mb": size.code / 1e6,
            "compile_s": round(size.compile_s, 1),
        }
    print(json.dumps(line))


if __name__ == "__main__":
    cli.run(main, MemoryOptions, __doc__)
