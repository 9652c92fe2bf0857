SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# What CI must not skip: a real S3 server, the real Lance library, DuckDB, Postgres.
REQUIRE ?= s3,lance,duckdb,postgres
# Executions, not seconds: with seconds, a worker that is busy as they end fails the
# fuzzer without a finding (go.dev/issue/75804).
FUZZES ?= 20000
ROUNDS ?= 10000
TESTFLAGS ?=
# Packages; the go tool passes over testdata, which holds one.
PACKAGES := ./... ./testdata

.PHONY: help build test ci lint fuzz property judge e2e bench fixtures generate tools

help: ## Show this list
	@grep -hE '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /\1\t/' | expand -t 12

build: ## Build bin/reconcile
	$(GO) build -o bin/reconcile ./cmd/reconcile

tools: ## Find or install what the tests need: PostgreSQL, node packages, an S3 server
	@.ci/tools

test: tools ## Run every test with the race detector; installs what is missing
	RECONCILE_TEST_REQUIRE=$(REQUIRE) $(GO) test -race -parallel 4 -timeout 20m $(TESTFLAGS) $(PACKAGES)

ci: ## What CI runs: tests, lint, end-to-end tests of the plain binary, fuzzers
	.ci/run

lint: ## Format, vet, staticcheck, go.mod and generated files
	@bad=$$(git ls-files -z '*.go' | xargs -0 gofmt -l); if [ -n "$$bad" ]; then echo "gofmt would change:"; echo "$$bad"; exit 1; fi
	$(GO) vet $(PACKAGES)
	$(GO) tool staticcheck $(PACKAGES)
	$(GO) mod tidy -diff
	$(GO) test -count=1 -run 'TestHelp$$|TestSchemaDocIsCurrent$$|TestReadme' ./cmd/reconcile ./report .

fuzz: ## Run every fuzzer FUZZES (20000) times
	@grep -rhoE --include='*_test.go' --exclude-dir=node_modules -H '^func Fuzz[A-Za-z0-9_]+' . \
	| sed -E 's|^\./(.*)/[^/]+:func (Fuzz.*)$$|\1 \2|' | sort -u \
	| while read -r dir name; do \
		echo "fuzz ./$$dir $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZES)x -fuzzminimizetime 50x "./$$dir" </dev/null; \
	done

property: ## Random damage, faults, rivals and lying peers: ROUNDS (10000) repairs of tables, and of copies
	$(GO) test -count=1 -timeout 15m -run 'TestRepairsUnderFaultsAndRivals' ./reconcile/tables -rapid.checks=$(ROUNDS)
	$(GO) test -count=1 -timeout 30m -run 'TestCopiesUnderFaultsAndLies' ./reconcile/mend -rapid.checks=$$(($(ROUNDS) / 10))

judge: tools ## Let four releases of the real library judge our commits to tables, and what we read from them
	RECONCILE_TEST_REQUIRE=$(REQUIRE) RECONCILE_TEST_JUDGE=all $(GO) test -count=1 -timeout 20m -run 'TestTheLibrary|TestDropping|TestAProcess|TestAnUndo' ./lance

e2e: tools ## Drive the plain binary, as it ships, against real servers
	RECONCILE_TEST_REQUIRE=$(REQUIRE) RECONCILE_TEST_E2E=all $(GO) test -count=1 -parallel 6 -timeout 15m ./e2e

bench: ## Measure time and memory of whole runs
	$(GO) test -run '^$$' -bench . -benchmem -timeout 30m ./...

fixtures: ## Write testdata/ anew with seven releases of the real Lance library
	e2e/fixtures/make.sh

generate: ## Write generated files anew: help texts, report schema, README output
	$(GO) test -count=1 -run 'TestHelp$$|TestExplain$$|TestConfigValidate$$' ./cmd/reconcile -update
	$(GO) test -count=1 -run 'TestSchemaDocIsCurrent$$' ./report -update
