# Everything is plain Go; the targets only save typing. ARGS is passed on to `run` and `bench`.
.DEFAULT_GOAL := help
.PHONY: help run build test test-long unit lint fmt bench

GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## run every role in one process on embedded back ends
	go run . $(ARGS)

build: ## build the static program bin/seckill
	CGO_ENABLED=0 go build -trimpath -o bin/seckill .

# The runner is built first, not `go run`: a signal then reaches it, and it stops its servers.
test: ## everything CI runs: starts real servers (and as root on Debian installs them), about 20 minutes
	@go build -o bin/testrun ./internal/testenv/cmd/testrun
	@bin/testrun $(ARGS)

test-long: ## the same with the full times of the failure cases and more fuzzing
	@SECKILL_LONG=1 $(MAKE) --no-print-directory test

unit: ## quick tests without servers
	go test -short ./...

lint: ## static checks
	go run $(GOLANGCI_LINT) run ./...

fmt: ## format the code
	gofmt -w .

bench: ## benchmarks of the parts; those on servers need the SECKILL_TEST_ variables
	go test -run "^$$" -bench . $(ARGS) ./hub ./internal/stock ./internal/ledger
