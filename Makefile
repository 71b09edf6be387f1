# `make test` and `make demo` need a Python of 3.10 to 3.13 and nothing else:
# the first call makes .venv with the pinned versions of requirements.txt.
PYTHON ?=
DATA ?=
OPS ?= 1
WORKERS ?= auto
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.complete
OPS_STAMP := $(VENV)/.ops
UV := $(PY) -m uv
# A file's tests stay together, for the fixtures that they share; the files
# start in the order that tests/conftest.py gives them. When a process crashes,
# its test is named and the rest given up: with a new process in its place
# pytest-xdist 3.8 waits for ever.
# Where each core has a process, threads would only wait for one another.
PYTEST := $(if $(filter auto,$(WORKERS)),OMP_NUM_THREADS=1) \
    $(PY) -m pytest -q -n $(WORKERS) --maxprocesses 8 --dist loadfile \
    --no-loadscope-reorder --max-worker-restart 0

# Some machines set it; each process would then compile its imports anew,
# which takes it 7 seconds more to start.
unexport PYTHONDONTWRITEBYTECODE

# The name of a folder: neither make nor the shell looks into it.
unexport DATA
quoted = '$(subst ','\'',$(value $(1)))'

.DEFAULT_GOAL := help
.PHONY: help compiler test test-quick test-release docs demo gpu wheels ops lint format lock clean

help:
	@echo 'make test             run the linter and the tests'
	@echo 'make test OPS=0       the same without detection, which needs a compiler'
	@echo 'make test-quick       the linter and the tests that take seconds'
	@echo 'make test-release     the package as mim installs it, the notebook, make gpu'
	@echo 'make test WORKERS=1   with one process instead of one a core'
	@echo 'make docs             build the site in docs/_build/html'
	@echo 'make demo             pretrain on a small image set, show the result'
	@echo 'make demo DATA=DIR    the same on your own images'
	@echo 'make gpu              tests and benchmarks on a GPU, 9 minutes'
	@echo 'make gpu ARGS=--list  its parts; ARGS="--parts step" takes one'
	@echo 'make wheels           what a machine with PyTorch alone lacks, in .wheels'
	@echo 'make wheels PYVER=3.11  for another Python than 3.12'
	@echo 'make ops              build what detection needs, once for a machine'
	@echo 'make lint             run the linter and the type checker'
	@echo 'make format           format the code'
	@echo 'make lock             renew the pins of requirements.txt'
	@echo 'make clean            remove the environment and all caches'
	@echo 'PYTHON=/path/to/python chooses the Python to make .venv with'

# Detection's operators need one, unless this machine has built them already;
# whether for this Python, the program that builds them knows.
compiler:
	@[ -e $(OPS_STAMP) ] || [ -d "$${XDG_CACHE_HOME:-$$HOME/.cache}/mmmoca" ] \
	    || command -v "$${CXX:-c++}" >/dev/null || { echo 'Detection needs a' \
	    'C++ compiler (Debian: apt install g++ python3-dev), and none is on' \
	    'PATH. Without detection: make test OPS=0' >&2; exit 1; }

test: $(if $(filter 0,$(OPS)),,compiler $(OPS_STAMP)) lint
	$(PYTEST) -m 'not release$(if $(filter 0,$(OPS)), and not ops)'

test-quick: lint
	$(PYTEST) -m 'not (slow or ops or processes or release)'

# What a change of the code seldom breaks, and takes environments of its own.
test-release: $(STAMP)
	$(PYTEST) -m release

docs: $(STAMP)
	$(PY) -m sphinx -q -W --keep-going docs docs/_build/html

demo: $(STAMP)
	$(PY) tools/demo.py $(if $(value DATA),--data=$(call quoted,DATA))

# A PYTHON that is given is taken as it is: nothing is fetched.
gpu: $(if $(PYTHON),,$(STAMP))
	PYTHONPATH=".:$$PYTHONPATH" $(or $(PYTHON),$(PY)) \
	    projects/performance/gpu.py $(ARGS)

# What a machine with PyTorch and without a network lacks, for Linux on x86-64:
# docs/get_started/install.md. mmcv is built apart from PyTorch, so without its
# operators, and serves any Python.
PYVER ?= 3.12
SOURCES := onedl-mmcv onedl-mmengine onedl-mmpretrain
WHEELS := addict huggingface-hub importlib-metadata mat4py model-index \
    ordered-set platformdirs termcolor terminaltables tokenizers transformers \
    yapf
wheels: $(STAMP)
	rm -rf .wheels
	$(PY) -m pip download -q --no-deps -c requirements.txt -d .wheels \
	    --only-binary=:all: --implementation cp --python-version $(PYVER) \
	    $(foreach tag,manylinux_2_28 manylinux_2_17 manylinux2014,\
	    --platform $(tag)_x86_64) $(WHEELS)
	MMCV_WITH_OPS=0 $(PY) -m pip wheel -q --no-deps --no-cache-dir \
	    -c requirements.txt -w .wheels $(SOURCES)

ops: compiler $(OPS_STAMP)

lint: $(STAMP)
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

format: $(STAMP)
	$(PY) -m ruff check --fix --exit-zero
	$(PY) -m ruff format

# Keeps the present pins where they still fit; see `make lock ARGS=--upgrade`.
lock: $(STAMP)
	$(UV) pip compile pyproject.toml -o requirements.txt -q --universal \
	    --python-version 3.10 --no-annotate --no-emit-index-url \
	    --no-emit-find-links --custom-compile-command 'make lock' \
	    $(foreach extra,onedl seg det dev,--extra $(extra)) $(ARGS)

clean:
	rm -rf $(VENV) .wheels build dist docs/_build docs/_generated *.egg-info \
	    .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A version manager may put a python3.x on PATH that only says it is absent,
# and Debian's comes without ensurepip: try each instead of looking for names.
define FIND_PYTHON
found=; \
for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.10 python3 python); \
do \
    if $$python -c 'import ensurepip, sys, venv; \
        sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
        >/dev/null 2>&1; then found=$$python; break; fi; \
done; \
if [ -z "$$found" ]; then \
    echo 'mmmoca needs a Python from 3.10 to 3.13 with its venv module (on' \
        'Debian: apt install python3-venv), and found none on PATH.' \
        'Install one, or run make PYTHON=/path/to/python ...' >&2; exit 1; \
fi
endef

# setuptools comes from requirements.txt: nothing is fetched for the build.
$(STAMP): requirements.txt pyproject.toml setup.py
	@$(FIND_PYTHON); echo "Making $(VENV) with $$found"; \
	$$found -m venv --clear $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check \
	    $(shell grep '^uv==' requirements.txt)
	$(UV) pip install --python $(PY) -r requirements.txt
	$(UV) pip install --python $(PY) --no-deps --no-build-isolation -e .
	@touch $@

# Only detection needs compiled operators: `make demo` does without. The wheel
# is kept for later environments; see tools/build_mmcv_ops.py.
$(OPS_STAMP): $(STAMP)
	$(PY) tools/build_mmcv_ops.py
	@touch $@
