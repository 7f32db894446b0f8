# The pipeline as file dependencies: `make` runs what is missing or out of date, and nothing else. `make help` lists
# the targets and the variables.
#
# - A measurement (00, 01) is raw data. It is made again for another model, host or setting, never because a script was
#   touched: scripts and virtual environment are order-only prerequisites (after the |) there.
# - A computed stage is made again when a table it reads, its script, a room it imports or a configuration changes.
# - A stage's stamp holds its flags and its section of configs/settings.ini. Stamps are compared while this file is
#   parsed, and only those that differ are out of date: `make PEAK_FLOPS=2e12` runs 03 and what reads it, and `make -n`
#   tells the truth.
# - Make knows all that a stage writes by one primary table: a stage puts its files in place together or not at all. So
#   there is no .DELETE_ON_ERROR here: what a failed stage leaves are the earlier tables, intact.
#
# GNU make 3.81 or newer. Paths with spaces are make's limit; the scripts themselves take them.

MODEL :=               # ONNX file, or the name of one in models/ (default: resnet50-fp32.onnx, which is built)
OUT :=                 # folder of the tables (default: out)
RUNS :=                # 01: unprofiled runs
SESSIONS :=            # 01: sessions, each further one in a new process
DURATION :=            # 01, 10, 19: measuring time, as 30s or 10m
WARMUP :=              # 01: least number of warm-up runs
RUN_TIMEOUT :=         # 01, load tests: time after which a run is ended, for example 10m
THREADS :=             # 00, 01: threads of the runtime (default: what the process may use)
PROVIDER :=            # 01: ONNX Runtime execution provider
DIM :=                 # 01, 02: dynamic dimensions, as "batch=1 seq=128"
INPUT :=               # 01, 02: inputs, as "NAME=file.npy NAME=image.png"
TRACE :=               # 01: a profile recorded elsewhere (ONNX Runtime, PyTorch, TensorRT, OpenVINO, QNN's CSV), for `make report`
EXECUTED_GRAPH :=      # 01: the graph that the session of TRACE saved
PEAK_FLOPS :=          # 03: ceiling in FLOP/s (default: the measured one)
MEM_BW :=              # 03: ceiling in bytes/s (default: the measured one)
AVG_POWER_W :=         # 05: average power while the model ran, from your meter
STATIC_POWER_W :=      # 05: power of the idle host
HOST_CPU :=            # 05: name of the host's processor, where a virtual machine hides it
BOARD :=               # 07, 24: a file of configs/boards (bitstream: of configs/fabrics), or the path of one (default: that of configs/settings.ini, or u280)
PRECISION :=           # 07, 24: number format of the kernels
HOST_TABLES :=         # 07: folder of the tables of 01 to 05 that were measured on the board's own processor
HOST_SCALE :=          # 07: factor on the profiled times for the board's own processor, as 6..10
HOST_SCALE_SOURCE :=   # 07: source of that factor, as "a benchmark of both"
HARDWARE :=            # 08: a file of configs/hardware, or the path of one (default: that of configs/settings.ini, or gemmini)
SWEEP :=               # 08: sizes to try, as "buffer_kib=8,16 array=16x16,32x32"
SOC :=                 # npu: chips to compile for, as 57,69,87
RATE :=                # 10, 19: requests per second (default: 10)
ARRIVALS :=            # 10, 19: poisson, constant or bursty (default: poisson)
BATCH_MAX :=           # 10, 14, 19: largest batch (default: 1)
BATCH_WAIT :=          # 10, 19: how long a request waits for others, as 5ms
POST :=                # 10, 14, 19: address of a dashboard that is told of the load while it lasts
BOUND_MS :=            # load: search the best configuration whose p99 is within this (14), and load it
HISTORY :=             # record: file of the history (default: runs.sqlite)
SEED :=                # fuzz, fuzz-coverage, mutants: seed of all cases, of the sample (default: 0)
MINUTES :=             # fuzz, fuzz-coverage: for all campaigns or readers together; mutants: processor time (default: 10)
CAMPAIGNS :=           # fuzz: "models tables configurations command-lines kills disks injection" (default: all)
ROOMS :=               # mutants: "comparison verdict offload load" (default: all)
HOST := $(shell uname -n)  # 00, 01: host of the measurement; give the old name to keep tables copied from it

HASH := \#
# A variable of the command line that this file does not know is refused: `make MODLE=x` would profile the default model.
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
KNOWN := $(shell sed -n 's/^\([A-Z_][A-Z_]*\) *:*=.*/\1/p' Makefile) PYTHON SHELL
DOCUMENTED := $(shell sed -n 's/^\([A-Z_][A-Z_]*\) *:=.*  [$(HASH)].*/\1/p' Makefile)
UNKNOWN := $(firstword $(filter-out $(KNOWN) MAKE% MFLAGS -%,$(GIVEN)))
similar = $(shell python3 -c 'import sys; from common.messages.names import did_you_mean; print(did_you_mean(sys.argv[1], sys.argv[2:]))' \
    $1 $2 2>/dev/null)
$(if $(UNKNOWN),$(error $(UNKNOWN): no such variable; $(call similar,$(UNKNOWN),$(DOCUMENTED))`make help` lists all))
OUT_DIR := $(patsubst %/,%,$(or $(strip $(OUT)),out))
HISTORY_FILE := $(or $(strip $(HISTORY)),runs.sqlite)
MODEL_NAME := $(or $(strip $(MODEL)),models/resnet50-fp32.onnx)
MODEL_FILE := $(or $(wildcard $(MODEL_NAME)),$(if $(findstring /,$(MODEL_NAME)),$(MODEL_NAME),models/$(MODEL_NAME)))
CONFIGURED_BOARD := $(shell sed -n 's/^ *board *= *\([^ ]*\).*/\1/p' configs/settings.ini | head -n 1)
BOARD_NAME := $(or $(strip $(BOARD)),$(CONFIGURED_BOARD),u280)
BOARD_FILE := $(or $(wildcard configs/boards/$(BOARD_NAME).yaml),$(wildcard $(BOARD_NAME)))

# --- virtual environment ---------------------------------------------------------------------------------------------
# `make PYTHON=/path/to/python` uses that interpreter as it is, and sets nothing up. Taken from the command line only:
# a PYTHON of the environment is rarely one that has the packages.

VENV := .venv
ifneq ($(origin PYTHON),command line)
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.ready-dev
TORCH_READY := $(VENV)/.ready-torch
DASHBOARD_READY := $(VENV)/.ready-dashboard
ENDPOINT_READY := $(VENV)/.ready-endpoint-test
endif
OPENVINO_VENV := .venv-openvino
OPENVINO_OUT := out/openvino
PEERS_VENV := .venv-peers
BITSTREAM_VENV := .venv-bitstream
QNN_VENV := .venv-qnn
QNN_OUT := out/npu
# A lock names every package, so pip looks for no others: some releases of pip take the newest one of a package that
# another asks for with an extra (coverage[toml]), and then miss its hash.
PIP_INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes
PIP_COMPILE := pip-compile
LOCK := CUSTOM_COMPILE_COMMAND="make lock" $(PIP_COMPILE) --quiet --generate-hashes --strip-extras \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

# --- the stages ------------------------------------------------------------------------------------------------------
# stages.mk is generated: NUMBERS, and for each number the SCRIPT, its primary TABLE, the stages that it READS, its
# OPTIONS, CONFIGS and the modules of its CODE (none for a measurement).

include stages.mk

# What a stage left that was killed while it put its files in place is completed before make looks at any file.
UNFINISHED := $(wildcard $(addsuffix /.onnx-profile-staging,$(sort out $(OUT_DIR))))
$(if $(UNFINISHED),$(shell $(PYTHON) -m common.artifacts settle $(dir $(UNFINISHED))))

CEILINGS := out/$(TABLE_00)
# Both ceilings given: 00 need not run. Its table is still read where there is one, for the size of the cache.
BOTH_GIVEN := $(and $(strip $(PEAK_FLOPS)),$(strip $(MEM_BW)))
USED_CEILINGS := $(if $(BOTH_GIVEN),$(wildcard $(CEILINGS)),$(CEILINGS))
RUN_STAGES := $(filter-out $(if $(BOTH_GIVEN),00) $(ASIDE),$(NUMBERS))

# $(call folder,NUMBER), $(call table,NUMBER): the ceilings are the host's, so they are in out/ whatever OUT is.
folder = $(if $(filter 00,$1),out,$(OUT_DIR))
table = $(call folder,$1)/$(TABLE_$1)
read_tables = $(foreach number,$(READS_$1),$(if $(filter 00,$(number)),$(USED_CEILINGS),$(if \
    $(filter $(ASIDE),$(number)),$(call written,$1,$(number)),$(call table,$(number)))))
# A stage that `make run` leaves out gives the sidecar of its table, if there is one. No target runs that stage for it.
# A measurement is not made again for it.
written = $(if $(filter $1,$(MEASUREMENTS)),,$(wildcard $(basename $(call table,$2)).meta.json))

# --- settings --------------------------------------------------------------------------------------------------------

# How each option is spelled on a command line; an option without a variable keeps its default. A model, its dimensions,
# inputs and runs are given to the stages that start from a model: the others read its tables.
flag = $(if $(strip $2),$1 $(strip $2))
each = $(foreach value,$2,$1 $(value))
of_model = $(if $(and $(READS_$1),$(filter-out $(MEASUREMENTS),$1)),,$2)
# What a search chose, a load with its best configuration is not given.
chosen = $(if $(and $(filter 10,$1),$(strip $(BOUND_MS))),,$2)
OPTION_model = $(call of_model,$1,--model $(MODEL_FILE))
OPTION_dim = $(call of_model,$1,$(call each,--dim,$(DIM)))
OPTION_input = $(call of_model,$1,$(call each,--input,$(INPUT)))
OPTION_runs = $(call of_model,$1,$(call flag,--runs,$(RUNS)))
OPTION_sessions = $(call flag,--sessions,$(SESSIONS))
OPTION_duration = $(call flag,--duration,$(DURATION))
OPTION_warmup = $(call flag,--warmup,$(WARMUP))
OPTION_run_timeout = $(call flag,--run-timeout,$(RUN_TIMEOUT))
OPTION_threads = $(call chosen,$1,$(call flag,--threads,$(THREADS)))
OPTION_provider = $(call flag,--provider,$(PROVIDER))
OPTION_from_trace = $(call flag,--from-trace,$(TRACE))
OPTION_executed_graph = $(call flag,--executed-graph,$(EXECUTED_GRAPH))
OPTION_peak_flops = $(call flag,--peak-flops,$(PEAK_FLOPS))
OPTION_mem_bw = $(call flag,--mem-bw,$(MEM_BW))
OPTION_ceilings = $(call flag,--ceilings,$(USED_CEILINGS))
OPTION_avg_power_w = $(call flag,--avg-power-w,$(AVG_POWER_W))
OPTION_static_power_w = $(call flag,--static-power-w,$(STATIC_POWER_W))
OPTION_cpu = $(if $(strip $(HOST_CPU)),--cpu $(call quoted,$(HOST_CPU)))
OPTION_board = $(call flag,--board,$(BOARD))
OPTION_precision = $(call flag,--precision,$(PRECISION))
OPTION_host_tables = $(call flag,--host-tables,$(HOST_TABLES))
OPTION_host_scale = $(call flag,--host-scale,$(HOST_SCALE))
OPTION_host_scale_source = $(if $(strip $(HOST_SCALE_SOURCE)),--host-scale-source $(call quoted,$(HOST_SCALE_SOURCE)))
OPTION_hardware = $(call flag,--hardware,$(HARDWARE))
OPTION_sweep = $(if $(strip $(SWEEP)),--sweep $(call quoted,$(SWEEP)))
OPTION_rate = $(call chosen,$1,$(call flag,--rate,$(RATE)))
OPTION_arrivals = $(call chosen,$1,$(call flag,--arrivals,$(ARRIVALS)))
OPTION_batch_max = $(call chosen,$1,$(call flag,--batch-max,$(BATCH_MAX)))
OPTION_p99_bound = $(if $(strip $(BOUND_MS)),--p99-bound $(strip $(BOUND_MS))ms)
OPTION_best = $(if $(strip $(BOUND_MS)),--best)
OPTION_batch_wait = $(call chosen,$1,$(call flag,--batch-wait,$(BATCH_WAIT)))
OPTION_post = $(call flag,--post,$(POST))
flags = $(strip $(foreach option,$(OPTIONS_$1),$(call OPTION_$(option),$1)) --out $(call folder,$1))

# The lines of a section of configs/settings.ini, without comments and without the settings that a flag gives. Any other
# line that begins with a bracket ends the section. Python may not be set up yet.
section = $(shell awk -v header='[$1]' -v given=' $2 ' ' \
    { sub(/(^|[ \t])[$(HASH)].*/, "") } !NF { next } /^[ \t]*\[/ { on = index($$0, header); next } \
    on && /^[^ \t]/ { name = $$0; sub(/[ \t]*=.*/, "", name); gsub(/-/, "_", name); skip = index(given, " " name " ") } \
    on && !skip' configs/settings.ini)
given = $(foreach option,$(OPTIONS_$1),$(if $(call OPTION_$(option),$1),$(option))) out
MACHINE := host $(strip $(HOST)) cpus $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
DIMENSIONS := $(call section,model $(notdir $(MODEL_FILE)),)
# What a stamp holds: the flags, the stage's section of the settings, for a measurement the machine, and for a stage that
# binds dimensions those of the model.
settings = $(call flags,$1) $(if $(filter $1,$(MEASUREMENTS)),$(MACHINE)) $(if $(filter dim,$(OPTIONS_$1)),$(DIMENSIONS)) \
    $(call section,$(basename $(SCRIPT_$1)),$(call given,$1))
$(foreach number,$(NUMBERS),$(eval SETTINGS_$(number) := $$(call settings,$(number))))

stamp = $(call folder,$1)/.make/$1
STAMPS := $(foreach number,$(NUMBERS),$(call stamp,$(number)))
quoted = '$(subst ','\'',$(strip $1))'
differs = $(shell printf '%s\n' $(call quoted,$(SETTINGS_$(notdir $1))) | cmp -s - $1 || echo $1)
CHANGED := $(foreach stamp,$(STAMPS),$(call differs,$(stamp)))

# --- targets ---------------------------------------------------------------------------------------------------------

.PHONY: run report design what-if load endurance record dashboard test-dashboard test test-slow test-exhaustive test-random test-exports test-search fuzz fuzz-coverage mutants openvino npu lint docs readme bench check-loadgen check-load check-load-models check-findings check-dashboard check-alarms check-limits check-queue check-history check-comparison check-profiler check-costs check-energy check-ceilings seed003 check-fpga check-decoders check-design check-peers check-rtl check-bitstream cosim bitstream rtl-tools lock clean distclean help changed
.PHONY: no-trace
TARGETS := $(shell sed -n 's/^\([a-z][a-z0-9-]*\):.*[$(HASH)][$(HASH)].*/\1/p' Makefile)
.NOTPARALLEL:  # nothing may run beside a measurement
.SUFFIXES:
.PRECIOUS: $(foreach number,$(NUMBERS),$(call table,$(number)))  # Ctrl-C deletes none

run: $(foreach number,$(RUN_STAGES),$(call table,$(number)))  ## run what is missing or out of date (the default)

report: $(if $(strip $(TRACE)),run,no-trace)  ## import the profile TRACE of MODEL, and run the later stages up to OUT/report.html

# What no rule makes: a misspelt target, or a file that is absent; giver is the variable that names it.
giver = $(firstword $(foreach name,INPUT_FILES TRACE EXECUTED_GRAPH,$(if $(filter $@,$($(name))),$(name:_FILES=))))
.DEFAULT:
	@$(if $(giver),printf '%s: %s: no such file\n' $(giver) $(call quoted,$@) >&2; exit 1)
	@printf '%s: no such target or file; %s\n' $(call quoted,$@) \
	    $(call quoted,$(call similar,$(call quoted,$@),$(TARGETS))`make help` lists all targets and variables) >&2; exit 1

no-trace:
	@echo "TRACE: missing; give the profile: make report TRACE=profile.json MODEL=model.onnx" >&2; exit 1

design: $(call table,08)  ## search accelerators for MODEL, from the tables of 02 (08, which `make run` leaves out)

what-if: $(call table,24)  ## plan again with another clock, link, number format and board (24), from the tables of 01 to 05

load: $(call table,10)  ## send requests to a service on MODEL (10); with BOUND_MS search the best configuration first (14)

endurance: $(call table,19)  ## load a service on MODEL for DURATION, part by part: leaks and drift (19)

record: run  ## add the figures of OUT to HISTORY with the commit, and export them as metrics (17)
	$(PYTHON) 17_record_run.py --append-to $(HISTORY_FILE) --out $(OUT_DIR)

dashboard: $(DASHBOARD_READY) $(if $(wildcard $(MODEL_FILE)),,$(MODEL_FILE))  ## show live what MODEL does, and print the address of the page (12)
	$(PYTHON) 12_dashboard.py $(call flags,12)

# Model, dimensions, inputs, board and flags are checked before anything is measured, by the stages that use them. The
# ceilings alone need no check.
own_flags = $(filter-out --out --ceilings,$(filter --%,$(call flags,$1))) $(call section,$(basename $(SCRIPT_$1)),)
CHECKED := 01 07 $(foreach number,03 05 09,$(if $(strip $(call own_flags,$(number))),$(number)))
CHECKS := $(OUT_DIR)/.make/checked
checks = $(if $(filter 00 01,$1),$(if $(filter-out $(CEILINGS),$(or $(MAKECMDGOALS),run)),$(CHECKS)))
# The line that the stages propose where a dimension has no size: this call of make, without DIM.
export MAKE_LINE := $(strip make $(MAKECMDGOALS) $(foreach name,$(filter-out DIM,$(GIVEN)),$(name)=$(if $(word 2,$($(name))),"$($(name))",$($(name)))))
# By setting, the variable that gives it: errors of the stages name it instead of the flag.
VARIABLE_OF := $(shell sed -n 's/^OPTION_\([a-z0-9_]*\) = .*$$(\([A-Z_]*\)).*/\1=\2/p' Makefile)
export MAKE_VARIABLES := $(filter $(addprefix %=,$(DOCUMENTED)),$(subst =MODEL_FILE,=MODEL,$(VARIABLE_OF)))

# What a stage needs beside tables, configurations and code. Files of the user come first: a model may have to be built.
INPUT_FILES := $(foreach input,$(INPUT),$(lastword $(subst =, ,$(input))))
needs = $(if $(filter from_trace,$(OPTIONS_$1)),$(TRACE) $(EXECUTED_GRAPH)) \
    $(if $(filter input,$(OPTIONS_$1)),$(INPUT_FILES) $(MODEL_FILE)) $(if $(filter board,$(OPTIONS_$1)),$(BOARD_FILE)) \
    $(if $(filter host_tables,$(OPTIONS_$1)),$(wildcard $(addprefix $(or $(strip $(HOST_TABLES)),/none)/,*.csv *.json))) \
    $(if $(filter hardware,$(OPTIONS_$1)),$(wildcard configs/hardware/*.yaml) $(wildcard $(strip $(HARDWARE))))
# The script of a measurement is an order-only prerequisite: a measurement is made again for what it measures.
script = $(if $(filter $1,$(MEASUREMENTS)),| $(call checks,$1) $(SCRIPT_$1),$(SCRIPT_$1) $(wildcard $(CODE_$1)) $(CONFIGS_$1) |)

define rule
$(call table,$1): $(call read_tables,$1) $(call needs,$1) $(call stamp,$1) $(call script,$1) $(READY)
	$$(PYTHON) $(SCRIPT_$1) $$(call flags,$1)
endef
$(foreach number,$(RUN_STAGES) $(ASIDE),$(eval $(call rule,$(number))))
$(if $(strip $(BOUND_MS)),$(eval $(call table,10): $(call table,14)))

$(CHECKS): $(foreach number,$(CHECKED),$(call stamp,$(number))) $(TRACE) $(EXECUTED_GRAPH) $(INPUT_FILES) $(MODEL_FILE) $(BOARD_FILE) | $(READY)
	@$(foreach number,$(CHECKED),$(PYTHON) $(SCRIPT_$(number)) --check $(call flags,$(number)) &&) touch $@

$(CHANGED): changed
$(STAMPS):
	@mkdir -p $(@D) && printf '%s\n' $(call quoted,$(SETTINGS_$(@F))) >$@

# A model is built where it is missing. It is not built again for its builder: that would throw a measurement away.
BUILT := resnet50 densenet121 vit-b16 bert-base vision-encoder resnet18 vgg16 mobilenet-v1 inception-v1 squeezenet
$(BUILT:%=models/%-fp32.onnx): models/%-fp32.onnx: | $(READY)
	$(PYTHON) -m models $* $@

models/tiny-%.onnx: | $(READY)
	$(PYTHON) -m models tiny-$* $@

%.onnx:
	@echo "$(if $(giver),$(giver): $@: no such file,$@: no such model file, here or in models/; MODEL takes the path of any ONNX file)" >&2; exit 1

$(VENV)/.ready: requirements.txt
	@test ! -L $(VENV) || { echo "$(VENV) is a link, and its folder is not cleared: remove the link, or give PYTHON=" >&2; exit 1; }
	@echo "setting up $(VENV) from requirements.txt (a minute or less)"
	@for python in python3 python3.13 python3.12 python3.11; do \
	    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; \
	done; test -n "$$python" || { echo "python3: 3.11 or newer is needed; install it" >&2; exit 1; }; \
	$$python -m venv --clear $(VENV)
	@$(PIP_INSTALL) -r requirements.txt
	@touch $@

$(VENV)/.ready-dev: requirements-dev.txt $(VENV)/.ready
	@echo "setting up the development tools from requirements-dev.txt"
	@$(PIP_INSTALL) -r requirements-dev.txt
	@touch $@

$(VENV)/.ready-torch: requirements-torch.txt $(VENV)/.ready-dev
	@echo "setting up the exporters from requirements-torch.txt (PyTorch: 0.2 GB for a CPU, several with CUDA)"
	@$(filter-out --no-deps --require-hashes,$(PIP_INSTALL)) -r requirements-torch.txt
	@touch $@

$(VENV)/.ready-search: requirements-search.txt $(VENV)/.ready-dev
	@echo "setting up the search engines from requirements-search.txt (PyTorch: 0.2 GB for a CPU, several with CUDA)"
	@$(filter-out --no-deps --require-hashes,$(PIP_INSTALL)) -r requirements-search.txt
	@touch $@

$(VENV)/.ready-fuzz: requirements-fuzz.txt $(VENV)/.ready-dev
	@echo "setting up Atheris from requirements-fuzz.txt"
	@$(PIP_INSTALL) -r requirements-fuzz.txt
	@touch $@

$(VENV)/.ready-dashboard: requirements-dashboard.txt $(VENV)/.ready
	@echo "setting up the dashboard's server from requirements-dashboard.txt"
	@$(PIP_INSTALL) -r requirements-dashboard.txt
	@touch $@

$(VENV)/.ready-endpoint: requirements-endpoint.txt $(VENV)/.ready
	@echo "setting up the gRPC client of endpoints from requirements-endpoint.txt"
	@$(PIP_INSTALL) -r requirements-endpoint.txt
	@touch $@

# Its wheel is for Linux on x86-64 with glibc 2.35; on another host the tests of endpoints are skipped.
$(VENV)/.ready-endpoint-test: requirements-endpoint-test.txt $(VENV)/.ready-endpoint $(VENV)/.ready-dev
	@echo "setting up Triton Inference Server from requirements-endpoint-test.txt (55 MB)"
	@$(PIP_INSTALL) -r requirements-endpoint-test.txt || echo "no Triton for this host: tests of endpoints are skipped" >&2
	@touch $@

$(VENV)/.ready-mutants: requirements-mutants.txt $(VENV)/.ready-dev
	@echo "setting up mutmut from requirements-mutants.txt"
	@$(PIP_INSTALL) -r requirements-mutants.txt
	@touch $@

$(VENV)/.ready-dashboard-test: requirements-dashboard-test.txt $(VENV)/.ready-dashboard $(VENV)/.ready-dev
	@echo "setting up the tests of the dashboard from requirements-dashboard-test.txt"
	@$(PIP_INSTALL) -r requirements-dashboard-test.txt
	@touch $@

# Its own search for a Python: the package has wheels for these three only.
$(OPENVINO_VENV)/.ready: requirements-openvino.txt
	@echo "setting up $(OPENVINO_VENV) from requirements-openvino.txt (0.6 GB)"
	@for python in python3 python3.13 python3.12 python3.11; do \
	    $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && break; python=; \
	done; test -n "$$python" || { echo "python3: 3.11, 3.12 or 3.13 is needed; install it" >&2; exit 1; }; \
	$$python -m venv --clear $(OPENVINO_VENV)
	@$(subst $(VENV),$(OPENVINO_VENV),$(PIP_INSTALL)) -r requirements-openvino.txt
	@touch $@

$(PEERS_VENV)/.ready: requirements-peers.txt $(VENV)/.ready
	@echo "setting up $(PEERS_VENV) from requirements-peers.txt (0.5 GB)"
	@$(PYTHON) -m venv --clear $(PEERS_VENV)
	@$(subst $(VENV),$(PEERS_VENV),$(PIP_INSTALL)) -r requirements-peers.txt
	@touch $@

$(BITSTREAM_VENV)/.ready: requirements-bitstream.txt $(VENV)/.ready
	@echo "setting up $(BITSTREAM_VENV) from requirements-bitstream.txt (0.35 GB)"
	@$(PYTHON) -m venv --clear $(BITSTREAM_VENV)
	@$(subst $(VENV),$(BITSTREAM_VENV),$(PIP_INSTALL)) -r requirements-bitstream.txt
	@touch $@

openvino: $(OPENVINO_VENV)/.ready $(if $(wildcard $(MODEL_FILE)),,$(MODEL_FILE))  ## set up OpenVINO, test it, and profile MODEL on it into out/openvino
	@$(OPENVINO_VENV)/bin/python -m pytest -q tests/runtime/test_openvino.py tests/runtime/test_providers.py
	$(OPENVINO_VENV)/bin/python 01_profile_onnx.py --provider openvino \
	    $(subst --out $(OUT_DIR),--out $(OPENVINO_OUT),$(filter-out --provider $(PROVIDER),$(call flags,01)))

$(QNN_VENV)/.ready: requirements-qnn.txt
	@echo "setting up $(QNN_VENV) from requirements-qnn.txt (1 GB)"
	@for python in python3 python3.13 python3.12 python3.11; do \
	    $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && break; python=; \
	done; test -n "$$python" || { echo "python3: 3.11, 3.12 or 3.13 is needed; install it" >&2; exit 1; }; \
	$$python -m venv --clear $(QNN_VENV)
	@$(subst $(VENV),$(QNN_VENV),$(PIP_INSTALL)) -r requirements-qnn.txt
	@touch $@

npu: $(QNN_VENV)/.ready $(if $(wildcard $(MODEL_FILE)),,$(MODEL_FILE))  ## set up QNN, test it, and profile MODEL on the emulated HTP into out/npu
	@$(QNN_VENV)/bin/python -m pytest -q tests/npu tests/runtime/test_qnn.py tests/stages/test_13_npu_profile.py
	$(QNN_VENV)/bin/python 13_npu_profile.py $(foreach option,model dim input runs,$(call OPTION_$(option))) \
	    $(call flag,--soc,$(SOC)) --out $(QNN_OUT)

# One worker runs all tests of a module: they share what it prepares.
WORKERS := --numprocesses logical --maxprocesses 8 --dist loadscope --no-loadscope-reorder
COVERAGE :=  # flags of pytest-cov. .ci/run counts the quick tests only, since counting doubles their time

# Tests start hundreds of processes. Without bytecode, each of them compiles what it imports.
test test-slow test-exhaustive test-random fuzz fuzz-coverage: export PYTHONDONTWRITEBYTECODE :=
test test-slow test-exhaustive test-random test-exports test-search test-dashboard fuzz openvino npu: export MAKE_LINE :=

test: lint  ## set up, then lint, types and the quick tests (six minutes of processor time)
	@$(PYTHON) -m pytest $(COVERAGE) $(WORKERS)

test-slow: $(DEV_READY) $(ENDPOINT_READY)  ## run the slow tests, which `make test` leaves out (a quarter of an hour)
	@$(PYTHON) -m pytest -m "slow and not exhaustive" $(WORKERS)

test-exhaustive: $(DEV_READY)  ## repeat brute forces and campaigns on many more cases than the other tests do (an hour)
	@$(PYTHON) -m pytest -m exhaustive $(WORKERS)

test-random: $(DEV_READY)  ## run the property tests on examples that no run before has tried
	@$(PYTHON) -m pytest -m hypothesis --hypothesis-profile random $(WORKERS)

test-exports: $(TORCH_READY)  ## set up PyTorch, then check exports by torch.onnx, and the gradients of the design space
	@$(PYTHON) -m pytest tests/exports tests/design_space --show-capture=no

test-search: $(VENV)/.ready-search  ## set up the packages of all search engines, then test the design space with them
	@$(PYTHON) -m pytest -m "" tests/design_space tests/stages/test_08_design_space.py

test-dashboard: $(VENV)/.ready-dashboard-test  ## set up the server of the dashboard, then test it, in Chromium where that is installed
	@$(PYTHON) -m pytest -m "" tests/monitor tests/stages/test_12_dashboard.py

fuzz: $(DEV_READY)  ## run hostile models, tables and settings, kills and full disks, each case by its SEED
	@$(PYTHON) -m tests.fuzz $(call flag,--seed,$(SEED)) $(call flag,--minutes,$(MINUTES)) $(call each,--campaign,$(CAMPAIGNS))

fuzz-coverage: $(VENV)/.ready-fuzz  ## fuzz every reader of files for MINUTES, guided by coverage (Atheris, Linux)
	@$(PYTHON) -m tests.fuzz.coverage_guided $(call flag,--seed,$(SEED)) $(call flag,--minutes,$(MINUTES))

mutants: $(VENV)/.ready-mutants  ## change the packages that decide, one place at a time, and count the changes that the tests notice
	@$(PYTHON) -m tests.mutation $(call flag,--seed,$(SEED)) $(call flag,--minutes,$(MINUTES)) $(call each,--room,$(ROOMS))

lint: $(DEV_READY)  ## ruff and mypy --strict
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m mypy --strict common models benchmarks $(wildcard [0-9][0-9]_*.py)

docs: $(READY)  ## generate docs/ARTIFACTS.md, docs/METRICS.md, stages.mk and common/table_rows.pyi from common/artifacts
	@mkdir -p docs
	@$(PYTHON) -m common.artifacts docs >docs/ARTIFACTS.md.tmp && mv docs/ARTIFACTS.md.tmp docs/ARTIFACTS.md
	@$(PYTHON) -m common.artifacts metrics >docs/METRICS.md.tmp && mv docs/METRICS.md.tmp docs/METRICS.md
	@$(PYTHON) -m common.artifacts make >stages.mk.tmp && mv stages.mk.tmp stages.mk
	@$(PYTHON) -m common.artifacts rows >common/table_rows.pyi.tmp && mv common/table_rows.pyi.tmp common/table_rows.pyi

readme: $(DEV_READY) models/resnet50-fp32.onnx models/bert-base-fp32.onnx  ## record the output that README.md and docs/MANUAL.md show (minutes, on a quiet host)
	@$(PYTHON) -m tests.recorded

bench: $(DEV_READY)  ## time every computed stage, interleaved and lone runs, and growing models beside peers
	@$(PYTHON) -m benchmarks.pipeline.stages --out $(OUT_DIR)
	@$(PYTHON) -m benchmarks.measuring.interleaving
	@$(PYTHON) -m benchmarks.pipeline.scaling
	@$(PYTHON) -m benchmarks.pipeline.unbound

check-loadgen: $(DEV_READY)  ## compare the latency clock with MLPerf LoadGen's on the same queries
	@$(PYTHON) -m benchmarks.measuring.loadgen

check-findings: $(DEV_READY)  ## plant causes of slowness in models, and count which of them 09 finds first, and whether mending gains what it says (ten minutes of a quiet host)
	@$(PYTHON) -m benchmarks.planted

check-comparison: $(DEV_READY)  ## count false alarms between equal measurements, and slower nodes that are found by name (half an hour)
	@$(PYTHON) -m benchmarks.series.comparison_power
	@$(PYTHON) -m benchmarks.series.comparison_power --folders

check-alarms: $(DEV_READY)  ## count false alarms between equal series of known laws, and the slowdowns that are found (minutes)
	@$(PYTHON) -m benchmarks.series.comparison_alarms

check-limits: $(DEV_READY)  ## count how often the limits of percentiles, mean and deviation hold, by kind of series (an hour)
	@$(PYTHON) -m benchmarks.series.limits
	@$(PYTHON) -m benchmarks.series.stopping_limits

check-load: $(DEV_READY)  ## measure the generator of load tests: delay, cost, memory, and percentiles beside LoadGen's
	@$(PYTHON) -m benchmarks.load.generator

check-dashboard: $(VENV)/.ready-dashboard models/mobilenet-v1-fp32.onnx  ## measure the live dashboard beside a model: rate, gaps, cost, memory, start, a kill
	@$(PYTHON) -m benchmarks.pipeline.dashboard

check-load-models: $(DEV_READY)  ## compare load tests of real models with LoadGen's Server scenario, and with the predicted queue
	@$(PYTHON) -m benchmarks.load.server_scenario

check-queue: $(DEV_READY)  ## compare the predicted queue with exact and simulated ones, by law of the calls, load and servers
	@$(PYTHON) -m benchmarks.load.queue_prediction

check-history: $(DEV_READY)  ## count false changes of level in histories of known laws, and find the smallest step that is seen
	@$(PYTHON) -m benchmarks.series.history_changes

check-profiler: $(DEV_READY)  ## compare corrected node times with unprofiled chains, at one thread and at all
	@$(PYTHON) -m benchmarks.measuring.profiler_cost --threads 1
	@$(PYTHON) -m benchmarks.measuring.profiler_cost

check-costs: $(DEV_READY)  ## measure what recording a run and sampling the sensors cost
	@$(PYTHON) -m benchmarks.measuring.recorder
	@$(PYTHON) -m benchmarks.measuring.sampler_cost

check-energy: $(DEV_READY)  ## compare the power of processors with published readings, and count how many the interval holds
	@$(PYTHON) -m benchmarks.measuring.processor_power

check-ceilings: $(DEV_READY)  ## compare the ceilings with numpy's BLAS, and with likwid-bench or STREAM where installed
	@$(PYTHON) -m benchmarks.measuring.ceilings_peers

seed003: $(READY)  ## write the kernel list of the vision encoder, as stated and corrected, into out/seed003
	@$(PYTHON) -m common.fpga kernels --out $(OUT_DIR)/seed003

check-fpga: $(DEV_READY)  ## fit the kernel models again, and count how many published figures, gains and frame rates their intervals hold
	@$(PYTHON) -m benchmarks.kernels.gemv_fit
	@$(PYTHON) -m benchmarks.kernels.overlay_fit
	@$(PYTHON) -m benchmarks.kernels.overlay_held_out
	@$(PYTHON) -m benchmarks.kernels.array_coverage
	@$(PYTHON) -m benchmarks.plans.odds_coverage
	@$(PYTHON) -m benchmarks.plans.throughput
	@$(PYTHON) -m benchmarks.plans.scaling

check-decoders: $(DEV_READY)  ## fit the law of decoders on cards again, and count how many published rates it holds, family by family
	@$(PYTHON) -m benchmarks.plans.decoders

check-design: $(DEV_READY)  ## compare mappings with DOSA's rows (../shared/data/dosa) and with Verilog, and map models
	@$(PYTHON) -m benchmarks.designs.dosa_rows
	@$(PYTHON) -m benchmarks.designs.gemmini_rtl
	@$(PYTHON) -m benchmarks.designs.verilog
	@$(PYTHON) -m benchmarks.designs.machines
	@$(PYTHON) -m benchmarks.designs.layers
	@$(PYTHON) -m benchmarks.designs.growth

check-peers: $(PEERS_VENV)/.ready $(DEV_READY)  ## set up ZigZag, and compare the mappings that it finds, and DOSA's rows, with the best ones (minutes)
	@$(PYTHON) -m benchmarks.designs.peers --python $(PEERS_VENV)/bin/python

check-rtl: $(DEV_READY)  ## simulate and synthesise systolic arrays kept back from the fit (needs rtl-tools; minutes)
	@$(PYTHON) -m pytest -q tests/fpga/rtl/test_rtl.py
	@$(PYTHON) -m benchmarks.kernels.systolic_fit check

cosim: $(DEV_READY)  ## simulate int8 networks on Verilog: on the array of a plan, and on whole engines (needs rtl-tools; minutes)
ifeq ($(strip $(MODEL)),)
	@$(PYTHON) -m benchmarks.plans.cosim $(call flag,--board,$(BOARD))
	@$(PYTHON) -m benchmarks.plans.engine_networks
else
	@$(PYTHON) -m benchmarks.plans.engine_networks --model $(or $(wildcard $(MODEL_FILE)),$(MODEL)) $(call flag,--board,$(BOARD))
endif

bitstream: $(if $(strip $(MODEL)),$(BITSTREAM_VENV)/.ready $(DEV_READY) $(MODEL_FILE))  ## plan an engine for the quantized MODEL on BOARD (ulx3s), place and route it, and plan again with the clock that closed
	$(if $(strip $(MODEL)),,$(error MODEL: not given; give a quantized model, as MODEL=out/quantized.onnx))
	@$(PYTHON) 32_build_engine.py --model $(MODEL_FILE) --route --open-tools $(BITSTREAM_VENV)/bin \
	    --build $(OUT_DIR)/bitstream --out $(OUT_DIR)/engine $(call flag,--board,$(BOARD)) $(call each,--dim,$(DIM)) \
	    $(if $(shell command -v verilator),--simulate)

check-bitstream: $(DEV_READY)  ## compare the planned cells of engines with those that nextpnr counted
	@$(PYTHON) -m benchmarks.kernels.routed_engines

rtl-tools:  ## install Yosys and Verilator from Debian or Ubuntu (as root, or with sudo)
	$(if $(filter 0,$(shell id -u)),,sudo )apt-get install --yes --no-install-recommends yosys verilator g++ make

lock:  ## pin requirements*.in again (needs pip-compile of pip-tools, under Python 3.11)
	$(LOCK) --output-file requirements.txt requirements.in
	$(LOCK) --output-file requirements-dev.txt requirements-dev.in
	$(LOCK) --output-file requirements-openvino.txt requirements-openvino.in
	$(LOCK) --output-file requirements-qnn.txt requirements-qnn.in
	$(LOCK) --output-file requirements-cluster.txt requirements-cluster.in
	$(LOCK) --output-file requirements-dashboard.txt requirements-dashboard.in
	$(LOCK) --output-file requirements-dashboard-test.txt requirements-dashboard-test.in
	$(LOCK) --output-file requirements-endpoint.txt requirements-endpoint.in
	$(LOCK) --output-file requirements-endpoint-test.txt requirements-endpoint-test.in
	@sed -n '/^#/p; /^nvidia-pytriton/,/^ *# via/p' requirements-endpoint-test.txt >requirements-endpoint-test.txt.tmp
	@mv requirements-endpoint-test.txt.tmp requirements-endpoint-test.txt
	$(LOCK) --output-file requirements-mutants.txt requirements-mutants.in
	$(LOCK) --output-file requirements-peers.txt requirements-peers.in
	$(LOCK) --output-file requirements-bitstream.txt requirements-bitstream.in
	$(LOCK) --output-file requirements-litex.txt requirements-litex.in
	$(LOCK) --output-file requirements-fuzz.txt requirements-fuzz.in
	$(filter-out --generate-hashes,$(LOCK)) --output-file requirements-torch.txt requirements-torch.in
	@sed 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements-torch.txt >requirements-torch.txt.tmp
	@mv requirements-torch.txt.tmp requirements-torch.txt
	$(filter-out --generate-hashes,$(LOCK)) --output-file requirements-search.txt requirements-search.in
	@sed 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements-search.txt >requirements-search.txt.tmp
	@mv requirements-search.txt.tmp requirements-search.txt

clean:  ## remove out/ with its measurements, and the tools' caches
	rm -rf out .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*

distclean: clean  ## remove the virtual environment and the built models as well
	rm -rf $(VENV) $(OPENVINO_VENV) $(QNN_VENV) $(PEERS_VENV) $(BITSTREAM_VENV) models/*.onnx models/*.onnx.data

help:  ## list targets and variables
	@echo "make [TARGET] [VARIABLE=value ...]"; echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile; echo
	@awk -F ' *:=.*  $(HASH) ' '/^[A-Z_]+ *:=.*  $(HASH) / {printf "  %-17s %s\n", $$1, $$2}' Makefile
