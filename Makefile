# Every target calls the build tool in crates/xtask; `make help` lists them.

XTASK = cargo run --quiet --locked -p slipstream-xtask --

# Of `make matrix`: releases of Debian, and an OpenSSL that none of them has.
RELEASES = trixie unstable openssl-4.0

.PHONY: help demo test matrix build install uninstall deb deb-test deb-reproduce container-test lint audit rust

help:
	@echo 'make demo       install what is needed, build, show it working, measure it (3 to 6 minutes)'
	@echo 'make test       install what tests need and run all of them'
	@echo 'make matrix     build and test on other releases of Debian and with OpenSSL 4.0 (as root;'
	@echo '                RELEASES=trixie for one of them, as .ci/run: 11 minutes)'
	@echo 'make build      build module, provider and command'
	@echo 'make install    copy them to where Debian keeps such things (as root, after make build)'
	@echo 'make uninstall  remove them again'
	@echo 'make deb        build Debian packages into target/deb (RELEASE=trixie: for Debian 13, from any release)'
	@echo 'make deb-test   install, upgrade, remove and purge them in a root file system (as root)'
	@echo 'make deb-reproduce   build them once more, and compare the bytes'
	@echo 'make container-test  build container images from the packages for Debian 13, and run them (as root)'
	@echo 'make lint       formatting, clippy, and the links of documents'
	@echo 'make audit      licences, bans, sources and advisories of dependencies (needs cargo-deny)'

# Parts of the nginx that is built for tests. Debian's has neither select nor poll: with these it is
# tested without epoll.
NGINX_PARTS = --with-select_module --with-poll_module --with-stream_ssl_preread_module \
  --with-mail --with-mail_ssl_module --with-http_slice_module --with-http_sub_module \
  --with-http_v3_module

demo: rust
	@$(XTASK) demo

test: rust
	@NGX_CONFIGURE_ARGS='$(NGINX_PARTS)' \
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

deb deb-test deb-reproduce container-test: rust
	@$(XTASK) $@ $(RELEASE)

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
