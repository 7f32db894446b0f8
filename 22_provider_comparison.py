"""Run a model with every execution provider of this build of ONNX Runtime, and compare the outputs with the CPU's.

Reads   the model file.
Writes  provider_comparison.csv (a row per provider and output: whether it runs, time of a call, largest errors).

EXAMPLE of input (a model) and output (provider_comparison.csv), some columns:

    tiny-cnn.onnx: input float32 [batch,3,13,17]

    compared_provider,output_name,call_us,max_abs_error,max_rel_error,cosine_error
    CPUExecutionProvider,output,30.2315,0,0,0

    python 22_provider_comparison.py --model bert.onnx --dim seq=128
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence

from common import cli
from common.load.service.served_model import ServedModel
from common.load.settings import RequestContent, matrix_options
from common.runtime.provider_matrix import provider_matrix
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS
from common.table_rows import ProviderComparisonRow
from common.view.load.compared_loads_text import PROVIDERS


def arguments() -> cli.Parser:
    parser = cli.Parser("22_provider_comparison.py", __doc__ or "")
    parser.shared(*cli.MODEL, "--threads")
    parser.shared("--optimization", choices=tuple(OPTIMIZATIONS), metavar=None)
    parser.shared("--seed", "--run-timeout")
    return parser


def compare(model: ServedModel, given: cli.Settings) -> list[ProviderComparisonRow]:
    return provider_matrix(model.path, matrix_options(given.values), model.samples[0])


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = stage.settings
        path = cli.model_path(given.model)
        model = RequestContent.of(given.values).model(path, cli.configured_bindings(given.config, path))
        stage.set_model(model.bound.model_id, path.name, model.bound.dimensions)
        with stage.writing() as transaction, limited_runs(given.run_timeout):
            rows = compare(model, given)
            transaction.add_rows("provider_comparison", rows)
        stage.show(PROVIDERS.text(rows))
    return 0


if __name__ == "__main__":
    cli.run(main)
