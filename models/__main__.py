"""``python -m models NAME PATH`` builds a model with seeded weights and saves it; ``--list`` names all models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import onnx

from models.classifiers import densenet121, inception_v1, mobilenet_v1, resnet, resnet8, squeezenet, vgg16
from models.small import control_flow, functions, generative, recurrent, tiny
from models.transformers import bert, decoder, vision_encoder, vit

BUILDERS: dict[str, Callable[..., onnx.ModelProto]] = {
    "resnet50": resnet.build_resnet50,
    "resnet18": resnet.build_resnet18,
    "vgg16": vgg16.build_vgg16,
    "mobilenet-v1": mobilenet_v1.build_mobilenet_v1,
    "inception-v1": inception_v1.build_inception_v1,
    "squeezenet": squeezenet.build_squeezenet,
    "densenet121": densenet121.build_densenet121,
    "vit-b16": vit.build_vit,
    "bert-base": bert.build_bert,
    "vision-encoder": vision_encoder.build_vision_encoder,
    "small-decoder": decoder.build_small_decoder,
    "small-packed-decoder": decoder.build_small_packed_decoder,
    "tiny-cnn": tiny.build_tiny_cnn,
    "tiny-mlp": tiny.build_tiny_mlp,
    "tiny-resnet8": resnet8.build_tiny_resnet8,
    "tiny-transformer": tiny.build_tiny_transformer,
    "tiny-two-inputs": tiny.build_tiny_two_inputs,
    "tiny-unnamed": tiny.build_tiny_unnamed,
    "tiny-densenet": densenet121.build_tiny_densenet,
    "tiny-vit": vit.build_tiny_vit,
    "tiny-bert": bert.build_tiny_bert,
    "tiny-vision-encoder": vision_encoder.build_tiny_vision_encoder,
    "tiny-decoder": decoder.build_tiny_decoder,
    "tiny-grouped-decoder": decoder.build_tiny_grouped_decoder,
    "tiny-expert-decoder": decoder.build_tiny_expert_decoder,
    "tiny-packed-decoder": decoder.build_tiny_packed_decoder,
    "tiny-state-space": generative.build_tiny_state_space,
    "tiny-speech-decoder": generative.build_tiny_speech_decoder,
    "tiny-rolling-decoder": generative.build_tiny_rolling_decoder,
    "tiny-action-expert": generative.build_tiny_action_expert,
    "tiny-lstm": recurrent.build_tiny_lstm,
    "tiny-gru": recurrent.build_tiny_gru,
    "tiny-rnn": recurrent.build_tiny_rnn,
    "tiny-loop": control_flow.build_tiny_loop,
    "tiny-loop-input": control_flow.build_tiny_loop_input,
    "tiny-loop-condition": control_flow.build_tiny_loop_condition,
    "tiny-loop-nested": control_flow.build_tiny_loop_nested,
    "tiny-loop-unnamed": control_flow.build_tiny_loop_unnamed,
    "tiny-scan": control_flow.build_tiny_scan,
    "tiny-if": control_flow.build_tiny_if,
    "tiny-if-loop": control_flow.build_tiny_if_loop,
    "tiny-same-names": control_flow.build_tiny_same_names,
    "tiny-functions": functions.build_tiny_functions,
}
MOST_SHOWN = 400  # characters of what is wrong with a command line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with one line, whatever was given."""
        text = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in message)
        self.exit(2, f"{self.prog}: error: {text[:MOST_SHOWN]}; see {self.prog} --help\n")


def arguments() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m models", description=__doc__, allow_abbrev=False)
    parser.add_argument("name", nargs="?", choices=BUILDERS, metavar="NAME", help=f"one of {', '.join(BUILDERS)}")
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="the ONNX file to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    parser.add_argument("--batch", type=int, metavar="N", help="a fixed batch size (default: dynamic)")
    parser.add_argument("--list", action="store_true", help="print the names with a description")
    return parser


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write the whole file or none: an interrupted build must not look like a model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        onnx.save(model, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments()
    given = parser.parse_args(argv)
    if given.list:
        for name, build in BUILDERS.items():
            print(f"{name}\n    {(build.__doc__ or '').splitlines()[0].replace('``', '')}")
        return 0
    if given.path is None:
        parser.error("NAME and PATH are needed, or --list")
    if given.seed < 0 or (given.batch is not None and given.batch < 1):
        parser.error("--seed must be a whole number of at least 0, --batch of at least 1")
    fixed = {} if given.batch is None else {"batch": given.batch}
    try:
        save(BUILDERS[given.name](seed=given.seed, **fixed), given.path)
    except OSError as error:
        print(f"{parser.prog}: error: {given.path}: cannot be written ({error.strerror})", file=sys.stderr)
        return 1
    print(f"wrote {given.path} ({given.path.stat().st_size:,} bytes)", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
