# make demo           the whole pipeline on text found on any machine
# make test           the test suite; make test-slow: the slow tests
# make test-pythons   the test suite and the journey on each supported Python that is installed
# make journey        the wheel on another Python, from a vocabulary to an export that answers
# make check          lint, format, types, architecture
# make wheel          dist/albert_tf-VERSION-py3-none-any.whl, with all programs
# make lock           pins requirements*.txt anew from requirements*.in
#
# The newest Python of VERSIONS that is found makes the environment; PYTHON=python3.11 chooses
# another one, and VENV=FOLDER another place for it.

VERSIONS = 3.13 3.12 3.11
UV_VERSION = 0.13.8
VENV = .venv
BIN = $(VENV)/bin

# The version of a Python that can make an environment. A shim of pyenv may fail, and Debian's Python
# lacks ensurepip until python3-venv is installed.
version = $(if $(1),$(shell $(1) -c 'import ensurepip, ssl, sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null))
PLACES = python$(1) $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/$(1).*/bin/python)
find = $(firstword $(foreach name,$(PLACES),$(if $(filter $(1),$(call version,$(name))),$(name))))
PYTHON ?= $(firstword $(foreach number,$(VERSIONS),$(call find,$(number))))
ifeq ($(if $(filter-out file,$(origin PYTHON)),$(call version,$(PYTHON)),given by name),)
override PYTHON := $(or $(call find,$(PYTHON:python%=%)),$(PYTHON))
endif

ifneq ($(wildcard $(VENV)/uv),)
made := $(call version,$(BIN)/python)
ifneq ($(made),$(if $(filter file,$(origin PYTHON)),$(or $(made),none),$(call version,$(PYTHON))))
$(error $(VENV) was made with Python $(or $(made),that is gone). Remove it (rm -r $(VENV)), or leave PYTHON out)
endif
endif

.NOTPARALLEL:
.PHONY: demo test test-slow test-pythons journey check wheel lock
.DELETE_ON_ERROR:

demo: $(VENV)/runtime
	$(BIN)/python -m examples.demo

test: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

# A process for each room: TensorFlow keeps more than 20 GB of all of them together. Status 5 means
# that a room has no slow tests.
SLOW_ROOMS = $(wildcard tests/albert_tf/*/ tests/albert_tf/*_test.py tests/*_test.py) \
  $(filter-out tests/albert_tf/, $(wildcard tests/*/))
test-slow: $(VENV)/slow
	status=0; for room in $(SLOW_ROOMS); do \
	  $(BIN)/python -m pytest -m slow --timeout=3600 $$room || [ $$? -eq 5 ] || status=1; \
	done; exit $$status

test-pythons: $(VERSIONS:%=test-python-%)

test-python-%:
	@$(if $(call find,$*),$(MAKE) test journey VENV=.venvs/$* PYTHON=$(call find,$*) JOURNEY=$(call find,$*), \
	  echo "Python $* is not installed: not tested")

# By default on another Python than the environment's.
JOURNEY ?= $(firstword $(foreach number,$(filter-out $(made),$(VERSIONS)),$(call find,$(number))))
journey: wheel
	@$(if $(JOURNEY),.ci/journey "$(JOURNEY)" dist/*.whl,echo "the journey needs another Python of $(VERSIONS), and none is installed: not tried")

check: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/architecture_test.py

wheel: $(VENV)/uv
	rm -rf build dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || date +%s) \
	  $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/*.whl

# The same versions on every Python and platform, where they exist for all.
LOCK = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --fork-strategy fewest \
  --no-annotate --no-header --no-emit-index-url --no-emit-find-links
lock: $(VENV)/uv
	$(LOCK) requirements.in --output-file requirements.txt > /dev/null
	$(LOCK) requirements-dev.in --output-file requirements-dev.txt > /dev/null
	# The same for a TPU VM, where another TensorFlow and a libtpu that goes with it are installed.
	{ head -2 requirements-tpu.txt; sed 's/^tensorflow==/tensorflow-tpu==/' requirements.txt; \
	  grep '^libtpu==' requirements-tpu.txt; } > $(VENV)/requirements-tpu.txt
	mv $(VENV)/requirements-tpu.txt requirements-tpu.txt
	# torch brings the CUDA libraries of its platform by itself.
	$(LOCK) -c requirements-dev.txt requirements-slow.in > $(VENV)/requirements-slow.txt
	sed -E '/^(nvidia-|cuda-|triton)/d' $(VENV)/requirements-slow.txt > requirements-slow.txt

# The environment, once for running and once with the development tools. uv installs in seconds what
# takes pip minutes; if uv is unavailable or fails, pip is used.
$(VENV)/uv:
	$(if $(filter $(VERSIONS),$(call version,$(PYTHON))),,$(error Python 3.11, 3.12 or 3.13 is needed, with its \
  module venv. Received: $(or $(call version,$(PYTHON)),none that works). Install one (Debian: apt install \
  python3-venv; elsewhere: https://www.python.org/downloads), or pass PYTHON=/path/to/python3.13))
	@echo "$(VENV): Python $(call version,$(PYTHON)) ($(PYTHON))"
	@$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) || echo "without uv: pip takes a few minutes"
	touch $@

$(VENV)/runtime: $(VENV)/uv requirements.txt
	$(call install,requirements.txt)
	touch $@

$(VENV)/dev: $(VENV)/uv requirements-dev.txt
	$(call install,requirements-dev.txt)
	touch $@ $(VENV)/runtime

$(VENV)/slow: $(VENV)/dev requirements-slow.txt
	$(call install,requirements-slow.txt)
	touch $@

define install
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -r $(1) \
	|| $(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(1)
endef
