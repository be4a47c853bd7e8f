# Everything the project does is one of these targets. All of them first see to `.venv`.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null \
	&& { echo $$python; break; }; done)
UV ?= uv
VENV := .venv
PY := $(VENV)/bin/python
N ?= 200
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-core test-slow test-times check format bench crash fuzz fuzz-rules mutants hazards states schemas hops floods man test-clients test-page test-remote test-database test-editors test-agents test-mcp test-openhands test-sdk \
	test-install bench-openhands pictures dist lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 17

demo: $(VENV)/.ready ## the main job, offline, in under 20 s
	@$(PY) -m acp_bridge demo $(ARGS)

# Workers as tests/conftest.py says (ARGS="-n 2" for fewer); a file's tests stay together, because they
# share what is slow to start.
# The files keep the order that tests/conftest.py gives them: those that start processes come first.
test: $(VENV)/.ready ## the tests but for the slow ones (ARGS="-k cancel" for some of them)
	$(PY) -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m "not slow" $(ARGS)

test-core: $(VENV)/.ready ## the tests of core alone, without features
	$(PY) -m pytest --numprocesses logical --dist loadfile --no-loadscope-reorder -m "not slow" tests/core $(ARGS)

test-slow: $(VENV)/.ready ## the slow ones: attacks, kills, operations at random, processes of the built-in agent
	$(PY) -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m slow $(ARGS)

test-times: $(VENV)/.ready ## CPU of the targets of .ci/run, and of each test (ARGS="test check" for some of them)
	@$(PY) -m tests.times $(ARGS)

check: $(VENV)/.ready ## format, lint, strict types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

format: $(VENV)/.ready ## put the code into the format that `make check` asks for
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(VENV)/.ready ## the figures (tests/benchmarks)
	$(PY) -m tests.benchmarks $(ARGS)

crash: $(VENV)/.ready ## SIGKILL at N random moments (N=200 SEED=1)
	$(PY) -m tests.crash --n $(N) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: $(VENV)/.ready ## N random operations on whole bridges (N=200 SEED=1)
	$(PY) -m tests.fuzz --n $(N) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz-rules: $(VENV)/.ready ## run N lines that rules allow in a sandbox, and compare (N=20000 SEED=1; ARGS=--faults)
	$(PY) -m tests.fuzz_rules --n $(N) $(if $(SEED),--seed $(SEED)) $(ARGS)

mutants: $(VENV)/.ready ## mutation testing of the turn machine, the codec, the verdicts of hooks and parts of a session
	$(PY) -m tests.mutants $(ARGS)

hazards: $(VENV)/.ready ## write the tests that prove each invariant into docs/invariants-tests.md
	@$(PY) -m tests.hazards

hops: $(VENV)/.ready ## files and functions that a message passes in a real bridge
	@$(PY) -m tests.benchmarks.hops $(ARGS)

floods: $(VENV)/.ready ## flood a server on the loopback: its memory, and how long others wait (15 minutes; ARGS=--help)
	@$(PY) -m tests.attacks $(ARGS)

states: $(VENV)/.ready ## write the table of the states into docs/architecture.md
	@$(PY) -m tests.core.machine.table

schemas: $(VENV)/.ready ## compare the kept schemas with the newest SDK's (needs npm; ARGS=--keep: take them)
	@$(PY) -m tests.schemas $(ARGS)

man: $(VENV)/.ready ## write the man page from the help
	@$(PY) -m tests.packaging.man_page

test-clients: $(VENV)/.ready ## clients that are not ours (needs npm)
	$(PY) -m pytest tests/clients_not_ours $(ARGS)

test-page: $(VENV)/.ready ## the page in a browser (needs Chromium, and npm for axe-core)
	$(PY) -m pytest tests/page_not_ours $(ARGS)

test-remote: $(VENV)/.ready ## two machines, and all who come from the other one (root, ip, Chromium, npm)
	$(PY) -m tests.two_machines

test-database: $(VENV)/.ready ## machines that are killed or cut off, and one database (root, ip, PostgreSQL)
	$(PY) -m tests.one_database $(ARGS)

test-editors: $(VENV)/.ready ## editors that are not ours, set up by what `setup` prints (npm, package index, git)
	$(PY) -m pytest tests/editors_not_ours $(ARGS)

test-agents: $(VENV)/.ready ## agents that are not ours, behind the bridge (needs npm)
	$(PY) -m tests.agents_not_ours $(ARGS)

test-mcp: $(VENV)/.ready ## MCP servers that are not ours (needs npm and the package index)
	$(PY) -m tests.mcp_not_ours

test-openhands: $(VENV)/.ready ## OpenHands' agent-server, driven by our agent (npm, package index, Python 3.12 or 3.13)
	@$(PY) -m tests.openhands_not_ours.environment # no test has the time to install it
	$(PY) -m pytest tests/openhands_not_ours $(ARGS)

# 1.0.0rc3 is the newest that some indexes have; what works around 0.12 is marked in agent/serve.
test-sdk: $(VENV)/.ready ## the agent's tests on each version of the SDK that it works with (package index)
	@for sdk in 0.12.1 1.0.0rc3; do \
	  $(PY) -m pip install -qq --disable-pip-version-check --no-deps --upgrade \
	    --target build/sdk/$$sdk agent-client-protocol==$$sdk || exit 1; \
	  echo "The SDK $$sdk:"; PYTHONPATH=$(CURDIR)/build/sdk/$$sdk; export PYTHONPATH; \
	  $(PY) -c "from importlib.metadata import version; assert version('agent-client-protocol') == '$$sdk'" \
	  && $(PY) -m pytest --numprocesses auto --dist loadfile tests/agent $(ARGS) || exit 1; \
	done

test-install: $(VENV)/.ready ## wheel and sdist installed with pip, pipx and uv (package index; ARGS=--every: each Python)
	$(PY) -m tests.installs $(ARGS)

pictures: $(VENV)/.ready ## record the demo and chat, and draw docs/pictures (ARGS=--draw: only draw)
	$(PY) -m tests.pictures $(ARGS)

dist: $(VENV)/.ready ## the wheel and the sdist, into dist/
	$(PY) -m hatchling build -d dist -t wheel -t sdist

bench-openhands: $(VENV)/.ready ## the figures on that server, into docs/benchmarks.md
	$(PY) -m tests.benchmarks.openhands_rows

# Seven days is the cool-down: what is younger is not taken. uv reads the upload times from the index.
# The slim one is that of the program without LiteLLM and what only LiteLLM needs.
lock: ## resolve the lock files anew (needs uv)
	@before=$$($(PYTHON) -c 'import datetime as d; \
	  print((d.datetime.now(d.UTC) - d.timedelta(days=7)).strftime("%Y-%m-%dT00:00:00Z"))'); \
	for lock in requirements.lock requirements-slim.lock requirements-dev.lock; do \
	  case $$lock in \
	    *-dev.lock) with="--extra dev";; \
	    *-slim.lock) with="--extra openhands --extra postgres --extra remote --constraint requirements.lock --excludes -";; \
	    *) with="--extra openhands --extra postgres --extra remote";; \
	  esac; \
	  echo litellm | $(UV) pip compile pyproject.toml $$with --upgrade --universal --no-config \
	    --generate-hashes --exclude-newer $$before --no-header --quiet --output-file $$lock || exit 1; \
	  { echo "# Made by 'make lock': nothing uploaded after $$before."; cat $$lock; } > $$lock.new; \
	  mv $$lock.new $$lock; echo "$$lock: up to $$before"; \
	done

clean: ## remove .venv and what the tools left
	rm -rf $(VENV) dist build/openhands-agent-server build/editors .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Two stamps: a change of the lock makes the environment anew, one of pyproject.toml only installs us.
$(VENV)/.locked: requirements-dev.lock
	@test -n "$(PYTHON)" || { echo "acp-bridge needs Python 3.11 to 3.14 (make PYTHON=/path/to/it)"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
	  || { echo "acp-bridge needs Python 3.11 to 3.14; $(PYTHON) is `$(PYTHON) --version 2>&1`"; exit 2; }
	@echo "Making $(VENV) from requirements-dev.lock: about a minute, once."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install -qq --disable-pip-version-check --require-hashes --only-binary :all: \
	  -r requirements-dev.lock \
	  || { echo "pip could not install what is needed. If it found no version, or could not connect: it needs" \
	  "the package index, once; a proxy stands in HTTPS_PROXY. Then run make again."; exit 1; }
	@touch $@

# pip notes the whole path of this folder. Where that has an accent, and LC_ALL=C is set, Python 3.11
# and 3.12 don't start any more; what is relative has no accent.
$(VENV)/.ready: $(VENV)/.locked pyproject.toml
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@for noted in $(VENV)/lib/python*/site-packages/_acp_stdio_bridge.pth; do \
	  echo ../../../.. > "$$noted"; done
	@touch $@
