# make demo       the whole pipeline on text found on any machine
# make test       the test suite; make test-slow: the slow tests
# make check      lint, format, types, architecture
# make lock       pins requirements*.txt anew from requirements*.in

PYTHON ?= python3.11
UV_VERSION = 0.13.8
BIN = .venv/bin

.PHONY: demo test test-slow check lock
.DELETE_ON_ERROR:

demo: .venv/runtime
	$(BIN)/python -m examples.demo

test: .venv/dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

# A process for each room: TensorFlow keeps more than 20 GB of all of them together. Status 5 means
# that a room has no slow tests.
SLOW_ROOMS = $(wildcard tests/albert_tf/*/ tests/albert_tf/*_test.py tests/*_test.py) \
  $(filter-out tests/albert_tf/, $(wildcard tests/*/))
test-slow: .venv/slow
	status=0; for room in $(SLOW_ROOMS); do \
	  $(BIN)/python -m pytest -m slow --timeout=3600 $$room || [ $$? -eq 5 ] || status=1; \
	done; exit $$status

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/architecture_test.py

lock: .venv/uv
	for name in requirements requirements-dev; do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header \
	    --no-emit-index-url --no-emit-find-links $$name.in | sed "/>= '3.12'/d; s/ ; python_full_version < '3.12'//" \
	    > $$name.txt; \
	done
	# The same for a TPU VM, where another TensorFlow and a libtpu that goes with it are installed.
	{ head -2 requirements-tpu.txt; sed 's/^tensorflow==/tensorflow-tpu==/' requirements.txt; \
	  grep '^libtpu==' requirements-tpu.txt; } > .venv/requirements-tpu.txt
	mv .venv/requirements-tpu.txt requirements-tpu.txt
	# torch brings the CUDA libraries of its platform by itself.
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links -c requirements-dev.txt requirements-slow.in \
	  | sed "/>= '3.12'/d; s/ ; python_full_version < '3.12'//; /^nvidia-\|^cuda-\|^triton/d" \
	  > requirements-slow.txt

# The environment, once for running and once with the development tools. uv installs in seconds what
# takes pip minutes; if uv is unavailable or fails, pip is used.
.venv/uv:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "Python 3.11 is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) || echo "without uv: pip takes a few minutes"
	touch $@

.venv/runtime: .venv/uv requirements.txt
	$(call install,requirements.txt)
	touch $@

.venv/dev: .venv/uv requirements-dev.txt
	$(call install,requirements-dev.txt)
	touch $@ .venv/runtime

.venv/slow: .venv/dev requirements-slow.txt
	$(call install,requirements-slow.txt)
	touch $@

define install
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -r $(1) \
	|| $(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(1)
endef
