# Everything happens in .venv/ of this checkout; uv is brought when it is missing.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export UV_COMPILE_BYTECODE := 1
export UV_PROJECT_ENVIRONMENT := .venv
# certificates of this machine, so that a proxy that it trusts is trusted (the second name is that of older versions)
export UV_SYSTEM_CERTS := 1
export UV_NATIVE_TLS := 1
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
RUN := .venv/bin

.PHONY: help install demo test coverage nightly soak chaos fairness fuzz quality bench lint types check docs wheel sbom release clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

install: .venv/.synced ## install into .venv, without the demo: the command is .venv/bin/rag-app

demo: .venv/.synced ## load the sample corpora, ask them questions, serve (CHECK=1: exit instead of serving)
	@$(RUN)/rag-app demo $(if $(CHECK),--check)

test: .venv/.synced ## run the tests with a real PostgreSQL, the contract suite on every vector store (minutes)
	$(RUN)/pytest $(PYTEST_ARGS)

nightly: .venv/.synced ## the long tier: fuzz, chaos, soak, all tests ten times, other Pythons (hours; NIGHTLY_RUNS)
	@UV="$(UV)" .ci/nightly

soak: .venv/.synced ## 4 workers and 64 clients for 5 minutes, PostgreSQL killed three times (SOAK_SECONDS, SOAK_CLIENTS)
	@$(RUN)/python -m tests.soak

chaos: .venv/.synced ## 10 minutes of load while server, workers, ingest and PostgreSQL are killed (CHAOS_SECONDS, CHAOS_SEED)
	@$(RUN)/python -m tests.chaos

fairness: .venv/.synced ## two organizations upload 5,000 files each to 4 workers while both search (FAIRNESS_FILES, FAIRNESS_WORKERS)
	@$(RUN)/python -m tests.fairness

fuzz: .venv/.synced ## 5,000 examples of each property, 2,000 of each HTTP operation (FUZZ_EXAMPLES, SCHEMATHESIS_EXAMPLES)
	FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-5000} $(RUN)/pytest --timeout 0 -m fuzz
	SCHEMATHESIS_EXAMPLES=$${SCHEMATHESIS_EXAMPLES:-2000} SCHEMATHESIS_CASES=$${SCHEMATHESIS_CASES:-10000} \
		$(RUN)/pytest -n 0 -s --timeout 0 tests/contract/test_schemathesis.py

quality: .venv/.synced ## retrieval quality on the collections in EVAL=folder (long)
	$(RUN)/python -m tests.quality "$(EVAL)"

bench: .venv/.synced ## speed beside the same by hand and stock LlamaIndex (long; BENCH_SIZE=5000 for a quick look)
	@$(RUN)/python -m bench

coverage: .venv/.synced ## run the tests and print which lines and branches of rag_app they do not reach (PYTEST_ARGS)
	$(RUN)/pytest --cov --cov-report term-missing $(PYTEST_ARGS)

lint: .venv/.synced ## ruff, import contracts, spelling and names
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/lint-imports
	$(RUN)/python -m tests.names
	$(RUN)/codespell README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs rag_app migrations
	$(RUN)/codespell --toml tests/glossary.toml rag_app prompts

types: .venv/.synced ## mypy, strict, over the package, the bench and the tests
	$(RUN)/mypy -p rag_app -p bench -p tests

check: lint types test ## tests, linters, types (CI adds the other store: .ci/run)

docs: .venv/.synced ## regenerate what is generated: docs/settings.md, .env.example
	$(RUN)/python -m tests.settings_docs > docs/settings.md
	$(RUN)/python -m tests.settings_docs env > .env.example

wheel: .venv/.synced ## build dist/*.whl
	$(UV) build --wheel

sbom: .venv/.synced ## dist/sbom.cdx.json (CycloneDX 1.5) and dist/requirements.txt, with hashes: what is locked, without tools
	@mkdir -p dist
	$(UV) export --quiet --frozen --no-dev --all-extras --format cyclonedx1.5 --output-file dist/sbom.cdx.json
	$(UV) export --quiet --frozen --no-dev --no-emit-project --output-file dist/requirements.txt

release: wheel sbom ## what a release has: the wheel, its bill of materials, its locked requirements

clean: ## remove the environment, the demo's database and caches
	rm -rf .venv .tools .rag dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/.synced: pyproject.toml uv.lock
	@if ! command -v "$(UV)" >/dev/null; then python3 -m venv .tools && .tools/bin/pip install --quiet uv; fi
	$(UV) sync --frozen --quiet
	@touch .venv/.synced
