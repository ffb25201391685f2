# Every target calls the build tool in crates/xtask; `make help` lists them.

XTASK = cargo run --quiet --locked -p slipstream-xtask --

# Of `make matrix`: releases of Debian, and an OpenSSL that none of them has.
RELEASES = trixie unstable openssl-4.0

.PHONY: help demo test matrix build install uninstall lint audit rust

help:
	@echo 'make demo       install what is needed, build, show it working, measure it (3 to 6 minutes)'
	@echo 'make test       install what tests need and run all of them'
	@echo 'make matrix     build and test on other releases of Debian and with OpenSSL 4.0 (as root;'
	@echo '                RELEASES=trixie for one of them, as .ci/run: 11 minutes)'
	@echo 'make build      build module, provider and command'
	@echo 'make install    copy them to where Debian keeps such things (as root, after make build)'
	@echo 'make uninstall  remove them again'
	@echo 'make lint       formatting, clippy, and the links of documents'
	@echo 'make audit      licences, bans, sources and advisories of dependencies (needs cargo-deny)'

demo: rust
	@$(XTASK) demo

test: rust
# Debian's nginx has neither select nor poll; the one that is built here has, to test without epoll.
	@NGX_CONFIGURE_ARGS='--with-select_module --with-poll_module' \
	  cargo run --quiet --locked -p slipstream-xtask --features nginx-source -- test

matrix: rust
	@cargo run --quiet --locked -p slipstream-xtask \
	  $(if $(filter openssl-4.0,$(RELEASES)),--features openssl-source) -- matrix $(RELEASES)

build: rust
	@$(XTASK) build

install: rust
	@$(XTASK) install

uninstall: rust
	@$(XTASK) uninstall

lint: rust
	@$(XTASK) lint

audit: rust
	@command -v cargo-deny >/dev/null || \
	  { echo 'cargo-deny is missing; get it with: cargo install --locked cargo-deny'; exit 1; }
	@cargo deny check

# The one thing that Debian's packages do not bring: Debian 12 has Rust 1.63.
rust:
	@command -v cargo >/dev/null || { \
	  echo 'cargo is missing. Slipstream needs Rust 1.89 or newer, which rustup brings:'; \
	  echo '  apt-get install rustup && rustup default stable   (Debian 13)'; \
	  echo '  or follow the instructions at rustup.rs           (Debian 12)'; exit 1; }
	@cargo --version | awk '{ split($$2, v, "."); if (v[1] == 1 && v[2] < 89) { \
	  print "cargo " $$2 " is too old. Slipstream needs Rust 1.89 or newer: rustup update stable"; exit 1 } }'
