//! Link arguments, the parts of nginx that its headers have, and the places of bit fields.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    // nginx unloads a module on reload when the new configuration does not name it, while
    // handshakes of old workers may still run in it, and while OpenSSL holds the provider that is
    // part of it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");

    println!("cargo:rustc-check-cfg=cfg(stream, stream_ssl_srv_conf)");
    // nginx-sys makes bindings of stream if the source tree was configured with it.
    let features = env::var("DEP_NGINX_FEATURES").unwrap_or_default();
    if features.split(',').any(|feature| feature == "stream_ssl") {
        println!("cargo:rustc-cfg=stream");
        if stream_ssl_header().contains("ngx_stream_ssl_srv_conf_t") {
            println!("cargo:rustc-cfg=stream_ssl_srv_conf");
        }
    }
    write_request_bits();
}

/// Has the C compiler say where the bit fields of a request are.
fn write_request_bits() {
    const SOURCE: &str = "request_bits.c";
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CC");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let program = out.join("request_bits");
    let mut compiler = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.arg(SOURCE).arg("-o").arg(&program);
    for folder in include_folders() {
        compiler.arg("-I").arg(folder);
    }
    let defines = env::var("DEP_NGINX_CFLAGS").unwrap_or_default();
    compiler.args(defines.split_ascii_whitespace());
    let status = compiler.status().expect("a C compiler can be run");
    assert!(status.success(), "{compiler:?}: {status}");
    let output = Command::new(&program)
        .output()
        .expect("it was built for this machine");
    assert!(output.status.success(), "{program:?}: {}", output.status);
    fs::write(out.join("request_bits.rs"), output.stdout).expect("OUT_DIR can be written");
}

fn include_folders() -> Vec<PathBuf> {
    let folders = env::var_os("DEP_NGINX_INCLUDE").unwrap_or_default();
    env::split_paths(&folders).collect()
}

/// Later versions of nginx have renamed the configuration of stream's TLS servers.
fn stream_ssl_header() -> String {
    include_folders()
        .into_iter()
        .find_map(|folder| fs::read_to_string(folder.join("ngx_stream_ssl_module.h")).ok())
        .expect("nginx was configured with stream_ssl, so its header is in an include folder")
}
