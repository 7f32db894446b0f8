"""Plan a decoder on a card: weights and caches in the card's memory, and each phase on the host or on the card.

Reads   the model file, generation.csv and generation_summary.json of 26; a board.
Writes  decode_plans.csv (a row for each format of the weights and each choice of host or card for prefill and decode),
        decode_lengths.csv (the time of a token by the length of the caches), decode_summary.json (the shortest answer).

A token of a decoder reads all weights and caches once, so the rate of the memory bounds it. 31 says whether weights and
caches fit the card, how long a token and a whole answer take there, and whether that pays. The host's times are those
of 26. The card's times of tokens follow from what published decoders on FPGAs attain, with the interval of those
designs. For a prompt, an array is planned as 07 plans one. The card looks tokens up and chooses the next one. So the
prompt crosses the link once, and then two tokens per step: the one before, and the one that the card chooses. If the
model has no table of embeddings, the host looks tokens up, and a row of the table crosses for each.

EXAMPLE of input (generation.csv) and output (decode_plans.csv), some columns:

    answer_index,token_index,generation_phase,past_token_count,token_us
    1,1,decode,128,13904.7

    weight_format,prefill_side,decode_side,card_resident_bytes,planned_tokens_per_s,planned_answer_likely_us,verdict
    int4,host,card,14155776,812.4,118211.0,pays

    python 31_decode_plan.py --model decoder.onnx --board u280                    # the answer that 26 measured
    python 31_decode_plan.py --model decoder.onnx --prompt 512 --tokens 256 --weight-format int4
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Mapping, Sequence
from pathlib import Path

from common import cli
from common.artifacts.folder import Folder
from common.artifacts.provenance import Provenance
from common.cli.plan_stage import CONFIGS
from common.files.configuration import Section
from common.fpga.coefficients import load_models
from common.fpga.decoding.demand import answer_lengths, answer_on_host, demands, require_one_sequence
from common.fpga.decoding.law import read_law
from common.fpga.decoding.plan import decode_plans, length_rows, plan_rows, summary_of
from common.fpga.decoding.prompt import ARRAY_FORMATS, CallWork, PromptPlan, call_work, decode_kernel, prompt_plan
from common.fpga.device.board import Board
from common.fpga.device.board_files import load_board
from common.fpga.planning.host_basis import host_basis
from common.fpga.speedup.energy import read_card_energy
from common.fpga.speedup.verdict import JudgedHost
from common.generation.decoder import CallSizes, Decoder, decoder_of
from common.generation.host_times import HostTimes, host_times
from common.generation.phases import HEAD, model_parts
from common.generation.resident import WEIGHT_BITS
from common.graphs.source_graph import from_rows
from common.messages.errors import UpstreamError
from common.messages.host_doubts import BUSY
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import LoadedModel, load_model
from common.onnx_graph.rows import edge_rows, metrics_row
from common.view.plan.decode_text import decode_notes, decode_report

MEASURES = "26_generation.py"


def arguments() -> cli.Parser:
    parser = cli.Parser("31_decode_plan.py", __doc__ or "")
    parser.shared("--model", **cli.DECODER)
    parser.shared("--dim", "--cache")
    parser.shared("--board", default="u280")
    text = "format of the weights on the card (default: every one)"
    parser.setting("--weight-format", choices=tuple(WEIGHT_BITS), help=text)
    count = {"type": cli.positive_int, "metavar": "N"}
    parser.setting("--prompt", help="tokens of the prompt (default: the longest that 26 measured)", **count)
    parser.setting("--tokens", help="tokens of the answer (default: as many as 26 measured)", **count)
    return parser


def require_measured(folder: Folder, path: Path, model: LoadedModel) -> None:
    """Refuse tokens of another model, or of other sizes of its dimensions; the error names both."""
    measured, sizes = folder.provenance("generation_summary"), dict(model.dimensions)
    problem = ""
    if measured.model_id != model.model_id:
        problem = f"of the model {measured.model_path or 'that no record names'}, not of {path}"
    elif measured.dimensions != sizes:
        problem = f"of the dimensions {_named(measured.dimensions)}, not of {_named(sizes)}"
    if problem:
        raise UpstreamError(folder.path("generation_summary"), problem, f"run {MEASURES} --model {path} first")


def _named(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sorted(sizes.items())) or "of the file"


def judged_host(measured: Provenance, host: HostTimes, board: Board) -> JudgedHost:
    """Return the host of 26, and why its times decide nothing, or nothing about a board's own processor."""
    processor = measured.host.get("cpu_model", "")
    basis = host_basis(processor, None, may_be_of_board=bool(processor))  # 26 may have run on the board itself
    busy = [note.partition(";")[0] for note in measured.notes if note.startswith(BUSY)]
    return JudgedHost(basis.kind, basis.of_plan(board), (*busy, *host.doubts), basis.mismatch(board))


def prompt_work(path: Path, decoder: Decoder, precision: str, prompt: int) -> CallWork:
    """Return the work of a prompt: that of the head for the last token alone."""
    head = {name for name, part in model_parts(decoder).items() if part == HEAD}

    def of_call(new: int, *, of_head: bool) -> CallWork:
        model = load_model(path, decoder.sizes(CallSizes(0, new)))
        counts = {count.node.name: count for count in count_nodes(model.graph, model.bounds)}
        metrics = [metrics_row(model, count) for count in counts.values()]
        graph = from_rows(metrics, edge_rows(model.graph, counts))
        return call_work(metrics, graph, precision, head, of_head=of_head)

    return of_call(prompt, of_head=False) + of_call(1, of_head=True)


def engines_of(
    path: Path, decoder: Decoder, formats: Sequence[str], prompt: int, board: Board
) -> dict[str, tuple[PromptPlan | None, str | None]]:
    """Return the prompt on an array, and the kernel of decode, in each format of the weights; None where none fits."""
    models, arrays = load_models(CONFIGS), {name: ARRAY_FORMATS[name] for name in formats}
    kernels = {name: decode_kernel(board, name, models) for name in formats}
    works = {array: prompt_work(path, decoder, array, prompt) for array in {*arrays.values()} if decoder.tokens}
    return {
        name: (
            prompt_plan(works[array], board, array, models, name) if decoder.tokens else None,
            kernel.name if (kernel := kernels[name]) else None,
        )
        for name, array in arrays.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given, path, folder = stage.settings, cli.model_path(stage.settings.model), stage.tables
        board = load_board(given.board, CONFIGS / "boards")
        law = read_law(Section.of_file(CONFIGS / "decoding.yaml"))
        energy = read_card_energy(Section.of_file(CONFIGS / "card_energy.yaml"))
        sizes = dict(given.dim)
        model = load_model(path, sizes, symbolic=True)
        stage.set_model(model.model_id, path.name, model.dimensions)
        decoder = decoder_of(model, sizes, dict(given.cache))
        require_one_sequence(decoder)
        measured, rows = folder.document("generation_summary"), folder.rows("generation")
        require_measured(folder, path, model)
        prompt, tokens = answer_lengths(decoder, measured, given.prompt, given.tokens)
        formats = [given.weight_format] if given.weight_format else [*WEIGHT_BITS]
        with stage.writing() as transaction:
            with folder.content():
                host = host_times(rows, is_loop=decoder.tokens is None)
                on_host = answer_on_host(host, prompt, tokens)
            engines = engines_of(path, decoder, formats, prompt, board)
            plans = decode_plans(law, board, on_host, demands(decoder, engines, host, prompt, tokens))
            judged = judged_host(folder.provenance("generation_summary"), host, board)
            planned = plan_rows(plans, board, law, on_host, energy, obstacle=judged.obstacle)
            basis: dict[str, object] = {"measured_length_count": host.longest, "doubts": judged.reasons}
            basis |= {name: measured[name] for name in ("bound", "memory_roof_share", "joules_per_token_j")}
            summary = summary_of(planned, on_host, prompt, tokens, basis)
            stage.note(*decode_notes(planned, summary, [length for length, _ in host.prompts]))
            transaction.add_rows("decode_plans", planned)
            transaction.add_rows("decode_lengths", length_rows(plans, board, law))
            transaction.add_document("decode_summary", summary)
        stage.show(decode_report(planned, summary))
    return 0


if __name__ == "__main__":
    cli.run(main)
