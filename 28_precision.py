"""Say on your samples what a number format does to the outputs of a model, and write the model in that format.

Reads   the model file, and samples: arrays, a .npz file or images; without them, random inputs.
Writes  precision.csv (error and agreement of each format by each scheme), precision_layers.csv (each layer alone in the
        format), precision_mixtures.csv (with --mixed: some layers in the format), quantized.onnx (the model in the
        format, for every other stage).

ONNX Runtime's own tools convert the model: to int16, int8 and int4 by QuantizeLinear and DequantizeLinear on the
operands of contractions, to int4 weights by MatMulNBits, and to fp16 as a whole. Casts round the operands of
contractions to fp16 and bf16. Half of the samples, at most 32 runs, calibrate the ranges of activations, and choose the
scheme and the mixture. The others judge. A top-1 agreement is the share of samples whose likeliest class is the same as
in float, with limits at 95 %. With labels, the accuracy is beside it.

EXAMPLE of input (samples) and output (precision.csv), some columns:

    digits.npz: image float32 [600,1,8,8], labels int64 [600]

    number_format,quantization_scheme,sqnr_db,top1_agreement_share,accuracy_share
    int8,"per channel, min-max",32.1,0.993,0.975

    python 28_precision.py --model digits.onnx --samples digits.npz
    python 28_precision.py --model resnet50.onnx --images photos --precision int8 --min-agreement 0.99
    python 28_precision.py --model bert.onnx --input input_ids=ids.npy --input attention_mask=mask.npy
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Mapping, Sequence
from pathlib import Path

from common import cli
from common.graphs.operators import CONTRACTIONS
from common.messages.errors import UnusableValueError
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import LoadedModel
from common.precision.conversion.schemes import ENGINE_FORMAT, FORMATS, Scheme
from common.precision.judgement.evaluation import BREAKS, Bounds
from common.precision.judgement.samples import SampleFiles, divided, loaded_samples
from common.precision.mixture import Mixture, chosen, mixtures, movable
from common.precision.rows import layer_rows, mixture_rows, precision_rows, study_notes
from common.precision.study import LayerJudgement, Study, best, layer_judgements, on_engine, scheme_results, studied
from common.runtime.inputs.images import NORMALIZATIONS
from common.runtime.memory import require_memory
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import given_settings
from common.view.plan.answer.precision_text import precision_report

USUAL_FORMAT = "int8"


def arguments() -> cli.Parser:
    parser = cli.Parser("28_precision.py", __doc__ or "")
    parser.shared("--model", "--dim")
    parser.shared("--input", help="a .npy file with the samples of an input along its first axis; repeatable")
    add = parser.setting
    add("--samples", type=cli.path, metavar="FILE", help="a .npz file: an array of samples for each input, and labels")
    add("--images", type=cli.path, metavar="PATH", help="a folder of images as samples")
    add("--normalize", choices=tuple(NORMALIZATIONS), default="imagenet", help="how values of the images are scaled")
    add("--labels", type=cli.path, metavar="FILE", help="a .npy file with the class of each sample, as whole numbers")
    add("--scores", metavar="NAME", help="output with scores of classes (default: the first that looks like one)")
    add("--random", type=cli.positive_int, default=32, metavar="N", help="number of random samples, if none are given")
    add("--precision", choices=FORMATS, default=USUAL_FORMAT, help="format of the single layers, and of quantized.onnx")
    text = "least share of samples whose likeliest class must stay the same"
    add("--min-agreement", type=cli.share, default=0.99, metavar="SHARE", help=text)
    add("--min-sqnr-db", type=cli.positive_float, metavar="DB", help="least signal-to-noise ratio of the output, in dB")
    text = "time for the trials of single layers, those with most MACs first"
    add("--budget", type=cli.duration, default=120.0, metavar="T", help=text)
    text = "leave some layers in float: write the mixture within the bounds that has most MACs in the format"
    add("--mixed", action="store_true", default=False, help=text)
    text = "write the model with every tensor in int8, as the engine in Verilog computes a whole network"
    add("--for-engine", action="store_true", default=False, help=text)
    parser.shared("--threads", "--run-timeout")
    parser.shared("--seed", help="seed of random inputs, and of the choice of the samples that calibrate")
    return parser


def require_one_written_model(given: cli.Settings) -> None:
    if given.for_engine and (given.mixed or given.precision != ENGINE_FORMAT):
        problem = "the engine computes a whole network in int8"
        raise UnusableValueError("for_engine", problem, "leave <mixed> out, and give <precision> int8")


def files_of(given: cli.Settings) -> SampleFiles:
    inputs = {name: Path(file) for name, file in given.input}
    return SampleFiles(inputs, given.samples, given.images, given.normalize, given.labels)


def macs_of(model: LoadedModel) -> dict[str, int | None]:
    """Return the MACs of each contraction, by name; None where they depend on data."""
    counts = {count.node.name: count.figure("macs") for count in count_nodes(model.graph, model.bounds)}
    names = [node.name for node in model.graph.nodes if node.op_type in CONTRACTIONS]
    return {name: macs if isinstance(macs := counts.get(name), int) else None for name in names}


def mix(
    stage: cli.StageRun, study: Study, scheme: Scheme, layers: Sequence[LayerJudgement], macs: Mapping[str, int | None]
) -> list[Mixture]:
    """Return mixtures of the layers that were judged, each with a run of its own."""
    known, work = movable(layers, macs), sum(count or 0 for count in macs.values())
    return mixtures(study, scheme, known, work, stage.progress_bar("mixtures")) if known else []


def broken_bounds(kept: Mixture | None, bounds: Bounds, source: str) -> list[str]:
    """Return what to say where the bounds are not met by any mixture, or not by the chosen one; nothing elsewhere."""
    if kept is None:
        return ["no mixture of layers meets the bounds: quantized.onnx has every layer in the format"]
    if bounds.verdict(kept.judgement, source) == BREAKS:
        return ["the chosen mixture breaks the bounds on the samples that judge: give stricter bounds"]
    return []


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given, path = stage.settings, cli.model_path(stage.settings.model)
        require_one_written_model(given)
        configured = cli.configured_bindings(given.config, path)
        model, samples = loaded_samples(path, dict(given.dim), configured, files_of(given), given.random, given.seed)
        require_memory(path, model.graph)
        stage.set_model(model.model_id, path.name, model.dimensions)
        macs, settings = macs_of(model), given_settings({**given.values, "provider": "cpu", "optimization": "all"})
        with stage.writing() as transaction, limited_runs(given.run_timeout), transaction.scratch() as folder:
            study = studied(path, folder, *divided(samples, given.seed), settings, given.scores)
            results = scheme_results(study, given.precision, stage.progress_bar("formats"))
            usual = best(results, study, given.precision)
            written = on_engine(results) if given.for_engine else usual
            nodes = sorted(usual.nodes, key=lambda node: -(macs.get(node) or 0))
            layers = layer_judgements(study, usual.scheme, nodes, given.budget, stage.progress_bar("layers"))
            left = [name for name in macs if name not in study.model.nodes]
            bounds = Bounds(given.min_agreement, given.min_sqnr_db)
            mixed = mix(stage, study, usual.scheme, layers, macs) if given.mixed else []
            kept = chosen(mixed, bounds)
            rows = precision_rows(study, results, None if kept else written, bounds, left)
            transaction.add_rows("format_precision", rows)
            transaction.add_rows("precision_layers", layer_rows(study, usual.scheme, layers, macs))
            transaction.add_rows("precision_mixtures", mixture_rows(study, usual.scheme, mixed, kept, bounds, left))
            transaction.add_copy("quantized_model", kept.target if kept else written.target)
            broken = broken_bounds(kept, bounds, samples.source) if given.mixed else []
            stage.note(*study_notes(samples, study, results, layers, left), *broken)
        stage.show(stage.plain(precision_report(rows, given.precision)))
    return cli.BROKE_THRESHOLD if broken else 0


if __name__ == "__main__":
    cli.run(main)
