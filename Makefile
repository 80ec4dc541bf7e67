# NanoClaw. `make chat` and `make test` are all a newcomer needs; the rest is for those who work on it.
GO      ?= go
BIN     := bin
LDFLAGS := -s -w
PROGRAMS := nanoclaw ncl agent-runner

export CGO_ENABLED = 0

.PHONY: build chat test lint unit fuzz fuzz-gate bench clean deps

build:
	@mkdir -p $(BIN)
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ $(addprefix ./cmd/,$(PROGRAMS))

# Builds, sets up what is missing, starts the host on NANOCLAW_HOME (default ~/.nanoclaw), opens a conversation.
chat: build
	@$(BIN)/nanoclaw chat --setup

# All suites, for real. As root on Debian it installs what they need; elsewhere it says what is missing.
test: deps build lint unit fuzz-gate

deps:
	@scripts/test-deps

lint:
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

# The race detector needs cgo; the programs themselves are built without.
unit:
	CGO_ENABLED=1 $(GO) test -race -timeout 20m ./...

# Every fuzz target for FUZZTIME; a found input is kept under testdata and fails from then on. The gate's three are what
# decides which words leave, what a model reads, and what a host takes from a sandbox.
FUZZTIME ?= 20s
fuzz:
	@scripts/fuzz $(FUZZTIME) .

fuzz-gate:
	@scripts/fuzz $(FUZZTIME) internal/runner/block internal/runner/prompt internal/mailbox/sqlite

bench: build
	@$(GO) run ./bench

clean:
	rm -rf $(BIN)
