# Thin on purpose: what these do is written in crates/xtask.

CARGO ?= cargo

.PHONY: help setup demo test bench prove

help:
	@echo 'make demo    real files on twelve drives, through two drive failures, in a few minutes'
	@echo 'make test    unit, property and end-to-end tests'
	@echo 'make bench   what the engine costs on this machine, to docs/benchmarks.md: no drives needed'
	@echo 'make prove   planted bugs, random runs, every crash of small cases, power cuts, kills; hours'
	@echo 'make setup   installs what the others need (Debian packages; they call it themselves)'

setup:
	@$(CARGO) xtask setup

demo: setup
	@$(CARGO) xtask demo

test: setup
	@$(CARGO) xtask test

bench:
	@$(CARGO) xtask bench

prove:
	@$(CARGO) xtask prove
